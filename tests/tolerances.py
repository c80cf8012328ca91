"""One table of tolerances. Loosening one is a commit of its own that names the measured error."""

VALUE = {"rtol": 1e-10, "atol": 1e-10}  # float64 values against dense algebra, condition < 1e4
GRADIENT = {"rtol": 1e-8, "atol": 1e-8}  # gradients against the dense closed form
DIFFERENCE = {"rtol": 1e-6, "atol": 1e-6}  # gradients against central differences
SHARDS = {"rtol": 1e-13, "atol": 1e-13}  # sums of the same terms in another order
SINGLE = {"rtol": 1e-4, "atol": 1e-4}  # float32 messages against float64
EXTENDED = 1e-12  # relative error of the nll against 80-digit arithmetic, any noise
FITS = {"rtol": 1e-6, "atol": 1e-6}  # predictions after optimisers whose steps differ by rounding
