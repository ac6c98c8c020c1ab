"""How dev/suites runs a suite: what suites_table.py and suites_sciences.py say of each."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """What of a suite runs on one device, and how it is told its device."""

    files: (
        str  # in its folder of tests, without test_ and .py; or a pattern of paths, which has a *
    )
    tests: str = "tests"
    source: str = "."
    arguments: str = ""  # for pytest; "{}" stands for the device
    device: str = "xla"  # what it calls the device
    default_device: bool = False  # whether it uses PyTorch's default device
    generators: bool = False  # whether those that name no device follow the default one
    without: tuple[str, ...] = ()  # parts of paths that the patterns should not match
    environment: dict[str, str] = field(default_factory=dict)  # "{}" stands for the device
    theirs: dict[str, str] = field(default_factory=dict)  # in names, messages: why they fail
    tests_a_file: int = 10
    fixtures: str = ""  # pytest's, that say "cpu" and are to say the device
    constants: str = ""  # of its modules, that say "cpu" (functions: which devices there are)
    choosers: str = ""  # functions of its library that say which device there is
    hub: bool = False  # whether it asks for models of the Hugging Face hub (suites_hub.py)
    device_types: bool = False  # whether PyTorch makes its tests for each type of device
