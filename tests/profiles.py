"""Numbers of examples of property tests, in proportion to hypothesis's profile."""

from hypothesis import settings


def examples(count):
    """`max_examples` of a test with `count` in the ordinary profile; more under `make fuzz`.

    A number in `@settings(max_examples=...)` would hold in every profile, fuzz included.
    """
    return count * settings.default.max_examples // settings.get_profile("triegp").max_examples
