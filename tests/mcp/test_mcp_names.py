"""Names of servers as names of files: one for each, and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnixfs import limits
from rnixfs.mcp.names import DOCUMENT, TEMPLATES, Template, file_name, name_of, path_uri, uri_path

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()))
AWKWARD = st.text("a/:.%2EFfile5é\0 {}")
SHORT = ["", "file:///", "file://", "file:/", "file:", "x://", "x:///", "x:/", "x:", TEMPLATES, "urn:a:"]
LONG = ["a" * 600, "%" * 300, "é" * 200, "a" * 70 + "://"]
BEGINNINGS = st.sampled_from([*SHORT, *LONG])
URIS = ANYTHING | AWKWARD | st.builds(lambda start, rest: start + rest, BEGINNINGS, AWKWARD)


def is_file_name(name: str) -> bool:
    """Whether a folder can hold the name."""
    whole = name.encode()  # every name is UTF-8
    return 0 < len(whole) <= limits.NAME_MAX and not set("/\0") & set(name) and name not in (".", "..")


@given(URIS)
@settings(max_examples=1000)
def test_a_uri_and_its_path_say_the_same(uri):
    """Whatever text a server calls its resource, its path leads back to it and can be walked."""
    path = uri_path(uri)
    assert path_uri(path) == uri
    assert all(map(is_file_name, path))
    assert path[0] != TEMPLATES
    beside_a_folder = (*path[:-1], path[-1] + DOCUMENT)
    assert is_file_name(beside_a_folder[-1])
    assert path_uri(beside_a_folder) == uri


@given(URIS, URIS)
def test_two_uris_have_two_paths(one, other):
    """Also where one of them has the name that marks a document beside a folder."""
    if one != other:
        paths = {uri_path(one), uri_path(other)}
        paths |= {(*path[:-1], path[-1] + DOCUMENT) for path in paths}
        assert len(paths) == 4


@given(URIS)
@settings(max_examples=1000)
def test_a_tool_and_its_file_say_the_same(name):
    """As long as the name fits into a file's; else the files of two tools still are two."""
    file = file_name(name)
    assert is_file_name(file + ".json")
    assert not file.endswith(".json")
    if "~" not in file:
        assert name_of(file) == name
    assert file_name(name + "x" * 300) != file_name(name + "x" * 301)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/me/a b.txt", "file:/home/me/a%20b.txt"),
        ("file://host/x", "file%3A/%/host/x"),
        ("demo://resource/static/one", "demo:/resource/static/one"),
        ("x:///a", "x:/%/a"),
        ("x://a//b/", "x:/a/%/b/%"),
        ("x://../.", "x:/%2E%2E/%2E"),
        ("urn:isbn:1", "urn:isbn:1"),
        ("mem:", "mem%3A"),
        ("x:/a", "x%3A/a"),
        ("a%20b", "a%2520b"),
        ("", "%"),
        (".templates.json", "%2Etemplates%2Ejson"),
    ],
)
def test_paths_of_uris(uri, path):
    """The common ones look as they are typed; the odd ones are still told apart."""
    assert "/".join(uri_path(uri)) == path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("get_time", "get_time"),
        ("get time ü", "get time ü"),
        ("a/b%", "a%2Fb%25"),
        ("a.json", "a%2Ejson"),
        ("..", "%2E%2E"),
        ("", "%"),
        ("a\nb", "a%0Ab"),
    ],
)
def test_files_of_tools(name, file):
    """Only what cannot be in a file's name is encoded."""
    assert file_name(name) == file


@pytest.mark.parametrize("path", ["a%2", "%zz", "a%%b", "%ff", "%FF", "x%"])
def test_a_path_that_stands_for_nothing(path):
    """Is no document."""
    assert path_uri((path,)) is None


@pytest.mark.parametrize(
    ("template", "folders", "documents", "neither"),
    [
        (
            "note://{book}/page/{n}",
            ["note:", "note:/b", "note:/b/page"],
            ["note:/b/page/1", "note:/b%20c/page/x.y"],
            ["x:", "note:/b/leaf", "note:/b/page/%", "note:/b/page/1/2", "note%3A"],
        ),
        ("file:///{+path}", ["file:"], ["file:/a", "file:/a%2Fb"], ["file:/a/b"]),
        ("db://t{/schema,table}", ["db:", "db:/t", "db:/t/s"], ["db:/t/s/x"], ["db:/s"]),
        ("q://find{?words}", ["q:"], ["q:/find", "q:/find?words=a"], ["q:/other"]),
        ("id:{n}", [], ["id:7"], ["id%3A7x/8", "no:7"]),
    ],
)
def test_templates(template, folders, documents, neither):
    """A template's variables stand for one part each; the folders on the way to a document are there."""
    found = Template(template)
    for path in folders:
        assert found.leads(path.split("/")), path
        assert not found.matches(path.split("/")), path
    for path in documents:
        assert found.matches(path.split("/")), path
    for path in neither:
        assert not found.matches(path.split("/")), path
        assert not found.leads(path.split("/")), path
