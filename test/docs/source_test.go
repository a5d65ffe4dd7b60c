package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// constant is a string constant of a package.
type constant struct {
	name, value, doc string
	// of is the name of its type, if it has one of its own.
	of string
}

// source is what the test reads of a package: files by name, constants by name.
type source struct {
	files     map[string]*ast.File
	constants map[string]constant
}

// sources reads the packages below pkg, without tests, by directory.
func sources(t *testing.T) map[string]source {
	t.Helper()
	all := map[string]source{}
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if _, ok := all[dir]; !ok {
			all[dir] = source{files: map[string]*ast.File{}, constants: map[string]constant{}}
		}
		all[dir].files[filepath.Base(rel)] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.evaluate()
	}
	return all
}

// evaluate finds constants. What refers to another is found in the second round, whatever the
// order of files.
func (s source) evaluate() {
	for range 2 {
		for _, file := range s.files {
			for _, decl := range file.Decls {
				if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
					for _, spec := range d.Specs {
						s.add(spec.(*ast.ValueSpec))
					}
				}
			}
		}
	}
}

func (s source) add(spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		value, ok := s.text(spec.Values[i])
		if !ok {
			continue
		}
		c := constant{name: name.Name, value: value, doc: spec.Doc.Text()}
		if id, ok := spec.Type.(*ast.Ident); ok {
			c.of = id.Name
		}
		s.constants[name.Name] = c
	}
}

// text is the value of a string expression of literals and constants of the package.
func (s source) text(expr ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		c, ok := s.constants[e.Name]
		return c.value, ok
	case *ast.BinaryExpr:
		left, ok := s.text(e.X)
		right, too := s.text(e.Y)
		return left + right, ok && too && e.Op == token.ADD
	}
	return "", false
}
