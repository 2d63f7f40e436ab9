"""The type stubs name exactly what the extension module has."""

import ast
import inspect
import pathlib

from rocketbufs import _rocketbufs

STUB = pathlib.Path(_rocketbufs.__file__).with_name("_rocketbufs.pyi")
# Of a `with`, which the stub has in a class of its own; and what Python adds to every class with a buffer or a comparison.
ADDED = {"__enter__", "__exit__", "__release_buffer__", "__module__", "__doc__", "__new__", "__repr__", "__dir__", "__hash__"}
ADDED |= {"__getattr__", "__getattribute__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__", "__delitem__", "__buffer__"}
INTERNAL = {"BatchIter", "BytesIter", "Offsets"}


def stub_classes():
    tree = ast.parse(STUB.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}


def test_the_package_is_typed():
    assert STUB.with_name("py.typed").exists()


def test_the_stub_names_every_class():
    classes = {name for name, value in vars(_rocketbufs).items() if inspect.isclass(value)}
    assert set(stub_classes()) == classes - INTERNAL


def test_the_stub_names_every_method():
    for name, stub in stub_classes().items():
        cls = getattr(_rocketbufs, name)
        here = {attribute for attribute in vars(cls) if attribute not in ADDED}
        there = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)} - ADDED
        assert there == here, name
        assert cls.__doc__, name


def test_the_stub_has_the_arguments_of_every_method():
    for name, stub in stub_classes().items():
        cls = getattr(_rocketbufs, name)
        for node in stub.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
                continue
            method = inspect.getattr_static(cls, node.name)
            if inspect.isgetsetdescriptor(method):
                assert [ast.unparse(decorator) for decorator in node.decorator_list] == ["property"], node.name
                continue
            arguments = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            if "staticmethod" not in [ast.unparse(decorator) for decorator in node.decorator_list]:
                arguments = arguments[1:]
            signature = inspect.signature(getattr(cls, node.name))
            actual = [argument for argument in signature.parameters if argument != "self"]
            for named in {"options", "attributes"}.intersection(actual):
                # The stub names what they are.
                actual.remove(named)
                arguments = arguments[: len(actual)]
            assert arguments == actual, (name, node.name)
