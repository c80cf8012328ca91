import hypothesis

hypothesis.settings.register_profile(
    "triegp", deadline=None, derandomize=True, print_blob=True, max_examples=60
)
hypothesis.settings.load_profile("triegp")
