from __future__ import annotations

import itertools
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import dure
import project

# What the design lists for what is built so far, and the modules that it names.
PUBLIC = [
    "ClusterSpec",
    "Device",
    "History",
    "Mirrored",
    "Model",
    "MultiWorkerMirrored",
    "SingleDevice",
    "Trainer",
    "__version__",
    "advise",
    "callbacks",
    "compare",
    "configure",
    "data",
    "devices",
    "errors",
    "strategy_from_env",
]


def python(program: str, *options: str) -> str:
    """Runs a program in a fresh Python and returns what it printed."""
    outcome = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_the_public_list_is_that_of_the_design() -> None:
    assert dure.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_found_and_documented(name: str) -> None:
    found = getattr(dure, name)
    assert name == "__version__" or found.__doc__
    assert name in dir(dure)


def test_what_the_public_modules_list_is_there() -> None:
    for module in (dure.data, dure.callbacks, dure.errors):
        assert module.__all__ == sorted(module.__all__)
        for name in module.__all__:
            assert getattr(module, name).__doc__


@pytest.mark.parametrize("module", ["callbacks", "data", "errors"])
def test_the_public_modules_can_be_imported_from_without_a_step_before(module: str) -> None:
    name = getattr(dure, module).__all__[0]
    program = f"from dure.{module} import {name}\nimport dure\nassert dure.{module}.{name} is {name}"
    python(program)


def test_a_star_import_gives_the_public_list() -> None:
    names: dict[str, object] = {}
    exec("from dure import *", names)
    assert set(PUBLIC) <= names.keys()


def test_a_missing_name_shows_near_misses() -> None:
    with pytest.raises(AttributeError, match=r"no attribute `Miror`\. Did you mean `Mirrored`\? There are: "):
        dure.Miror  # noqa: B018


def test_a_missing_name_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="Pipline"):
        from dure import Pipline  # noqa: F401


def test_the_version_is_said_once_and_the_same_everywhere() -> None:
    table = tomllib.loads((project.ROOT / "pyproject.toml").read_text())["project"]
    assert dure.__version__ == table["version"] == version("dure")
    assert (project.PACKAGE / "py.typed").is_file()


def third_party(program: str) -> set[str]:
    """Returns the top names of the modules outside Python's own that a program has loaded at its end."""
    loaded = python(
        f"import sys; before = set(sys.modules)\n{program}\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    return set(loaded.split())


def test_the_import_is_cheap() -> None:
    assert third_party("import dure") == {"dure"}


def test_errors_and_settings_need_no_jax() -> None:
    program = "import dure; dure.errors; dure.configure; dure.devices; import dure.devices.names"
    assert third_party(program) == {"dure"}


def test_help_needs_no_jax() -> None:
    program = """
import contextlib, io
from dure.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main(["--help"])
assert "compare" in out.getvalue()
"""
    slow = {"jax", "jaxlib", "numpy", "keras", "optax", "orbax", "matplotlib"}
    assert third_party(program) & slow == set()


# A package that is a function too, and two of its modules.
WAYS = [
    "import dure",
    "import dure.{package}",
    "import dure.{package}.{module}",
    "from dure import {package}",
    "from dure.{package} import {module}",
    "import dure.{package}.{main}",
    "import dure; dure.{package}",
]
SAME = """
import sys, dure
assert dure.{package} is sys.modules["dure.{package}"]
assert callable(dure.{package})
import dure.{package}.{module}
assert dure.{package}.{module} is sys.modules["dure.{package}.{module}"]
assert callable(dure.{package})
from dure import {package}
assert {package} is dure.{package}
"""


@pytest.mark.parametrize("first", range(len(WAYS)))
@pytest.mark.parametrize(
    ("package", "module", "main"), [("devices", "names", "inventory"), ("advise", "units", "cost")]
)
def test_a_package_is_a_function_too_whatever_comes_first(package: str, module: str, main: str, first: int) -> None:
    told = [way.format(package=package, module=module, main=main) for way in WAYS]
    same = SAME.format(package=package, module=module)
    ways = [f"{told[first]}\n{second}\n{same}" for second in told if second != told[first]]
    forget = "import sys\nfor name in [n for n in sys.modules if n.startswith('dure')]: del sys.modules[name]"
    python("\n".join(itertools.chain.from_iterable((forget, way) for way in ways)))


def test_devices_can_be_called() -> None:
    import dure.devices.inventory

    assert dure.devices() == dure.devices.inventory.devices()


def test_advice_can_be_called() -> None:
    from dure.advise.advise import advise

    with pytest.raises(dure.errors.SpecError, match="batch_size is 0"):
        dure.advise(batch_size=0)
    assert advise.__doc__


def test_the_types_of_the_public_names_are_known(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import dure\n"
        "from dure.devices import names\n"
        "reveal_type(dure.devices())\n"
        "reveal_type(dure.devices()[0].name)\n"
        "reveal_type(dure.errors.near('a', ['b']))\n"
        "reveal_type(names)\n"
        "dure.Miror\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", project.ROOT / ".mypy_cache", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line.split(": ", 1)[1] for line in outcome.stdout.splitlines() if ": " in line]
    assert said[:4] == [
        'note: Revealed type is "tuple[dure.devices.inventory.Device, ...]"',
        'note: Revealed type is "str"',
        'note: Revealed type is "list[str]"',
        'note: Revealed type is "types.ModuleType"',
    ], outcome.stdout + outcome.stderr
    assert said[4].startswith('error: Module has no attribute "Miror"')
