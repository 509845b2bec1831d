package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// constant is a declared constant and what the comment beside it says.
type constant struct{ Value, Comment string }

// constants returns the string constants of the named type in a Go file, in
// their order. One without a comment is an error: the document would be blank.
func constants(file, typeName string) ([]constant, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read constants: %w", err)
	}
	var all []constant
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typeName {
				continue
			}
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok {
				return nil, fmt.Errorf("%s: %s is no literal", file, v.Names[0].Name)
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, v.Names[0].Name, err)
			}
			text := v.Doc.Text() + v.Comment.Text()
			text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), v.Names[0].Name+": ")
			if text == "" && value != "" {
				return nil, fmt.Errorf("%s: %s has no comment", file, v.Names[0].Name)
			}
			all = append(all, constant{Value: value, Comment: text})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no constant of type %s", file, typeName)
	}
	return all, nil
}
