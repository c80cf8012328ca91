"""Whether kernels run on a CUDA device, or in the simulator."""

import os

ON_CARD = os.environ.get("TRIEGP_TEST_CARD") == "1"
