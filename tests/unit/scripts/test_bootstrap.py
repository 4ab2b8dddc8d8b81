"""The set-up on machines where something is missing: one sentence, and no half-made .venv."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.version import build_kind
from scripts import bootstrap, check_documents

ROOT = Path(__file__).resolve().parents[3]


def tools(directory: Path, *names: str) -> str:
    """A search path with these tools alone."""
    directory.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None, name
        (directory / name).symlink_to(found)
    return str(directory)


def test_without_python_the_sentence_says_which_to_install(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "sh", "dirname")
    answer = subprocess.run(
        ["sh", str(ROOT / "scripts" / "bootstrap.sh")],
        env={"PATH": path},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("Penstock needs Python 3.11 or newer, and none was found")
    assert answer.stderr.count("\n") == 1


def test_without_pythons_venv_module_the_sentence_names_debians_package(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    script = (
        "import runpy, sys; sys.modules['ensurepip'] = None;"
        " runpy.run_path('scripts/bootstrap.py', run_name='__main__')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert answer.returncode == 1
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert f"`apt-get install {version}-venv`" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


def test_a_step_is_done_only_for_what_it_was_made_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "STAMPS", tmp_path / "stamps")
    assert not bootstrap.is_done("package", "sources of today")
    bootstrap.done("package", "sources of today")
    assert bootstrap.is_done("package", "sources of today")
    assert not bootstrap.is_done("package", "sources of tomorrow")


def test_a_subset_of_a_lock_file_is_pinned_as_it_was() -> None:
    locked = (
        "# made by\na==1 \\\n    --hash=sha256:1\nab==2 \\\n    --hash=sha256:2\n    # via a\n"
        "b==3 \\\n    --hash=sha256:3 \\\n    --hash=sha256:4\n"
    )
    expected = (
        "a==1 \\\n    --hash=sha256:1\nb==3 \\\n    --hash=sha256:3 \\\n    --hash=sha256:4\n"
    )
    assert bootstrap.pins_of({"a", "b"}, locked) == expected


def test_each_package_that_compiled_modules_lead_to_is_there_when_they_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the types of a package mypyc would make other C of what uses them."""
    monkeypatch.chdir(ROOT)
    needed = packages_reached(compiled_modules())
    assert "msgspec" in needed
    assert {name.replace("_", "-") for name in needed} <= bootstrap.COMPILER
    locked = (ROOT / "requirements" / "locked.txt").read_text(encoding="utf-8")
    assert all(f"\n{name}==" in locked for name in bootstrap.COMPILER)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    isolated = {re.split("[<>=]", name)[0] for name in project["build-system"]["requires"]}
    come_along = {"librt", "mypy-extensions", "pydantic-core"}  # with mypy and pydantic
    assert {name.replace("_", "-") for name in needed} <= isolated | come_along


def test_each_line_of_what_is_compiled_names_files_that_no_other_line_names() -> None:
    package = ROOT / "src" / "penstock"
    seen: set[Path] = set()
    for line in compiled_lines():
        named = set(package.glob(line.removeprefix("!")))
        assert named, line
        assert named <= seen if line.startswith("!") else not named & seen, line
        seen ^= named


def test_a_build_has_the_listed_modules_as_machine_code_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    package = Path(penstock.__file__).parent
    libraries = {path.relative_to(package) for path in package.rglob("*.so")}
    built = {str(path.parent / path.name.partition(".")[0]) for path in libraries}
    listed = {
        str(path.relative_to(ROOT / "src" / "penstock").with_suffix(""))
        for path in compiled_modules()
    }
    assert built == (listed if build_kind() == "compiled" else set())


def test_a_module_that_needs_its_annotations_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The schema of a compiled struct cannot be made: its annotations are gone."""
    monkeypatch.chdir(ROOT)
    structs = [
        path.name
        for path in compiled_modules()
        if re.search(r"\((msgspec\.Struct|BaseModel)\b", path.read_text(encoding="utf-8"))
    ]
    assert structs == []
    assert ROOT / "src/penstock/engine/declared_limits.py" not in compiled_modules()


def test_a_build_refuses_a_list_of_modules_that_names_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = setup_names()["modules"]
    package = tmp_path / "src" / "penstock" / "engine"
    package.mkdir(parents=True)
    for name in ("__init__.py", "fifo.py", "clock.py"):
        (package / name).touch()
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.penstock]\ncompiled = ["engine/*.py", "!engine/clock.py"]\n')
    assert modules() == ["src/penstock/engine/fifo.py"]
    (package / "clock.py").unlink()
    with pytest.raises(SystemExit, match=r"lists !engine/clock\.py as compiled, but there is no"):
        modules()


def compiled_lines() -> list[str]:
    """The lines of pyproject.toml about what is compiled."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines: list[str] = project["tool"]["penstock"]["compiled"]
    return lines


def compiled_modules() -> set[Path]:
    """The files that setup.py compiles."""
    return {ROOT / path for path in setup_names()["modules"]()}


def setup_names() -> dict[str, Any]:
    """What setup.py defines."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8").partition("\nsetup(")[0]
    names: dict[str, Any] = {"__name__": "setup"}
    exec(compile(setup, "setup.py", "exec"), names)
    return names


def packages_reached(modules: set[Path]) -> set[str]:
    """The packages beside Penstock and Python that modules import, or what they import does."""
    found: set[str] = set()
    seen: set[Path] = set()
    waiting = list(modules)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            else:
                continue
            found.update(name.partition(".")[0] for name in names)
            for name in names:
                place = ROOT / "src" / name.replace(".", "/")
                waiting += [
                    one for one in (place.with_suffix(".py"), place / "__init__.py") if one.exists()
                ]
    return found - sys.stdlib_module_names - {"penstock"}


def test_the_build_directory_follows_the_source_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, build = tmp_path / "root", tmp_path / "build"
    engine = root / "src" / "penstock" / "engine"
    engine.mkdir(parents=True)
    build.mkdir()
    monkeypatch.setattr(bootstrap, "ROOT", root)
    monkeypatch.setattr(bootstrap, "BUILD", build)
    project = root / "pyproject.toml"
    project.write_text('[tool.penstock]\ncompiled = ["engine/*.py"]\n')

    def copy(*names: str) -> None:
        for name in names:
            (engine / name).touch()
        bootstrap.copy_sources([], [engine / name for name in names])

    copy("a.py", "b.py")
    library = build / "build" / "lib.linux" / "penstock" / "a.so"
    library.parent.mkdir(parents=True)
    library.touch()
    copy("a.py", "b.py")
    assert library.exists(), "compiled modules are kept while the list of them is the same"
    copy("a.py", "c.py")
    assert not library.exists()
    copied = {path.name for path in (build / "src" / "penstock" / "engine").iterdir()}
    assert copied == {"a.py", "c.py"}


def test_an_unreadable_package_registry_is_reported_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "LOGS", tmp_path)
    monkeypatch.setattr(bootstrap, "INSTALLING", tmp_path / "installing")
    with pytest.raises(SystemExit, match=r"failed at: dependencies\. The whole log is"):
        bootstrap.run("dependencies", ["sh", "-c", "echo no route to host; exit 3"])
    assert "no route to host" in (tmp_path / "dependencies").read_text()


def test_a_link_that_leads_nowhere_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check_documents, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "# A heading, here\n[b](b.md) [c](c.md) [a](#a-heading-here) [d](#d)"
        " [site](https://example.org) `[code](e.md)`\n"
    )
    (tmp_path / "b.md").touch()
    complaints = list(check_documents.check_links())
    assert complaints == [
        "a.md: the link c.md leads nowhere.",
        "a.md: the link #d names no heading of a.md.",
    ]


def test_the_set_up_ignores_a_python_path() -> None:
    assert "PYTHONPATH" not in bootstrap.environment()
    assert bootstrap.environment().get("PATH") == os.environ.get("PATH")


def test_every_file_of_the_source_is_installed() -> None:
    files = [path for path in (ROOT / "src" / "penstock").rglob("*") if path.is_file()]
    made = {".pyc", ".so"}
    left_out = [
        path
        for path in files
        if path.suffix not in made and not any(path.match(kind) for kind in bootstrap.SHIPPED)
    ]
    assert files
    assert left_out == []
    packaging = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"*" = ["py.typed", "*.j2", "*.html", "*.js", "*.css"]' in packaging
