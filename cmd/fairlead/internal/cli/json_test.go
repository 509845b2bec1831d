package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/tools/go/packages"

	"github.com/fairlead/fairlead/tools/page"
)

const viewPath = "github.com/fairlead/fairlead/cmd/fairlead/internal/view"

// free describes the documents without fixed fields, by command.
var free = map[string]string{
	"fairlead install outputs": "map of the components, each a map of its outputs",
	"fairlead runner get":      "[configuration of a runner](runner-file.md)",
	"fairlead runner import":   "[configuration of a runner](runner-file.md)",
}

// printsNoJSON are the commands that print no document.
var printsNoJSON = map[string]bool{
	"fairlead dev": true, "fairlead server": true, // --ready-file has their document
	"fairlead runner agent": true, // a service
}

// sources are the type-checked packages cli and view.
type sources struct {
	cli, view *packages.Package
	document  types.Type                     // view.Document
	bodies    map[types.Object]*ast.FuncDecl // functions of package cli
	results   map[string]types.Type          // name of a type of view → type of its JSON
	same      map[string]string              // name of a type of view → the type whose JSON it returns
	made      map[string]types.Type          // name of a function of view that calls Done → type of its JSON
}

func loadSources(t *testing.T) *sources {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{
		Context: t.Context(),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
	}, ".", viewPath)
	if err != nil {
		t.Fatal(err)
	}
	s := &sources{bodies: map[types.Object]*ast.FuncDecl{}, results: map[string]types.Type{}, made: map[string]types.Type{}, same: map[string]string{}}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatal(e)
		}
		if p.PkgPath == viewPath {
			s.view = p
		} else {
			s.cli = p
		}
	}
	s.document = s.view.Types.Scope().Lookup("Document").Type()
	for _, f := range s.cli.Syntax {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				s.bodies[s.cli.TypesInfo.Defs[fn.Name]] = fn
			}
		}
	}
	delegated := map[string]string{} // type of view → type whose JSON it returns
	for _, f := range s.view.Syntax {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil && fn.Name.Name != "JSON" {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && fn.Recv == nil && types.ExprString(call.Fun) == "Done" {
					s.made[fn.Name.Name] = s.view.TypesInfo.TypeOf(call.Args[0])
				}
				if r, ok := n.(*ast.ReturnStmt); ok && fn.Recv != nil {
					s.results[types.ExprString(fn.Recv.List[0].Type)] = s.view.TypesInfo.TypeOf(r.Results[0])
					if call, ok := r.Results[0].(*ast.CallExpr); ok {
						if other, ok := call.Fun.(*ast.SelectorExpr); ok && other.Sel.Name == "JSON" {
							delegated[types.ExprString(fn.Recv.List[0].Type)] = types.TypeString(s.view.TypesInfo.TypeOf(other.X), func(*types.Package) string { return "" })
						}
					}
				}
				_, inner := n.(*ast.FuncLit)
				return !inner
			})
		}
	}
	for name, other := range delegated {
		s.results[name], s.same[name] = s.results[other], other
	}
	return s
}

// printed returns the types of the documents that the code below node prints, by what
// the page calls them. It follows calls within the package.
func (s *sources) printed(node ast.Node, seen map[ast.Node]bool, found map[string]types.Type) {
	if seen[node] {
		return
	}
	seen[node] = true
	info := s.cli.TypesInfo
	add := func(e ast.Expr) {
		if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
			if fn, ok := call.Fun.(*ast.SelectorExpr); ok && fn.Sel.Name == "Done" && info.Uses[fn.Sel].Pkg() == s.view.Types {
				s.addType(info.TypeOf(call.Args[0]), found)
				return
			}
			if fn, ok := call.Fun.(*ast.SelectorExpr); ok && s.made[fn.Sel.Name] != nil && info.Uses[fn.Sel].Pkg() == s.view.Types {
				s.addType(s.made[fn.Sel.Name], found)
				return
			}
		}
		s.addView(info.TypeOf(e), found)
	}
	var results []*types.Tuple // of the functions around a node
	var walk func(n ast.Node) bool
	walk = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			results = append(results, info.TypeOf(n).(*types.Signature).Results())
			ast.Inspect(n.Body, walk)
			results = results[:len(results)-1]
			return false
		case *ast.ReturnStmt:
			if len(results) == 0 {
				break
			}
			own := results[len(results)-1]
			for i, e := range n.Results {
				if i < own.Len() && types.Identical(own.At(i).Type(), s.document) {
					add(e)
				}
			}
		case *ast.CallExpr:
			sig, ok := info.TypeOf(n.Fun).(*types.Signature)
			for i, arg := range n.Args {
				if ok && i < sig.Params().Len() && types.Identical(sig.Params().At(i).Type(), s.document) {
					add(arg)
				}
			}
		case *ast.Ident:
			for t := range info.Instances[n].TypeArgs.Types() {
				s.addView(t, found)
			}
			use := info.Uses[n]
			if fn, ok := use.(*types.Func); ok {
				use = fn.Origin()
			}
			if body := s.bodies[use]; body != nil {
				s.printed(body, seen, found)
			}
		}
		return true
	}
	if fn, ok := node.(*ast.FuncDecl); ok {
		results = append(results, s.cli.TypesInfo.Defs[fn.Name].Type().(*types.Signature).Results())
		node = fn.Body
	}
	ast.Inspect(node, walk)
}

// addView adds the JSON of a type of package view.
func (s *sources) addView(t types.Type, found map[string]types.Type) {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() != s.view.Types {
		return
	}
	if result, ok := s.results[named.Obj().Name()]; ok && !types.Identical(t, s.document) {
		if _, anonymous := result.(*types.Struct); anonymous {
			found[cmp.Or(s.same[named.Obj().Name()], named.Obj().Name())] = result
			return
		}
		s.addType(result, found)
	}
}

func (s *sources) addType(t types.Type, found map[string]types.Type) { found[typeName(t)] = t }

// node returns the code that makes a command: the innermost call that returns a command,
// around the literal of its short text, else the function around it.
func (s *sources) node(short string) (best ast.Node) {
	for _, fn := range s.bodies {
		var stack []ast.Node
		ast.Inspect(fn, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			stack = append(stack, n)
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			if v := s.cli.TypesInfo.Types[e].Value; v == nil || v.Kind() != constant.String || constant.StringVal(v) != short {
				return true
			}
			best = fn
			for _, outer := range slices.Backward(stack) {
				if call, ok := outer.(*ast.CallExpr); ok && types.TypeString(s.cli.TypesInfo.TypeOf(call), nil) == "*github.com/spf13/cobra.Command" {
					best = call
					break
				}
			}
			return true
		})
	}
	return best
}

// typeName returns how the page calls a type.
func typeName(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		switch t.Obj().Pkg().Path() + "." + t.Obj().Name() {
		case "time.Time":
			return "time"
		case "encoding/json.RawMessage":
			return "any JSON"
		}
		if _, ok := t.Underlying().(*types.Struct); !ok {
			return typeName(t.Underlying())
		}
		return t.Obj().Name()
	case *types.Pointer:
		return typeName(t.Elem())
	case *types.Slice:
		if types.Identical(t.Elem(), types.Typ[types.Byte]) {
			return "base64"
		}
		return "list of " + typeName(t.Elem())
	case *types.Map:
		return "map of " + typeName(t.Elem())
	case *types.Basic:
		switch {
		case t.Info()&types.IsNumeric != 0:
			return "number"
		case t.Info()&types.IsBoolean != 0:
			return "true or false"
		}
		return "text"
	case *types.Interface:
		return "any JSON"
	}
	return t.String()
}

// structOf returns the struct that values of a type hold, through pointers, lists and
// maps; nil if there is none.
func structOf(t types.Type) (string, *types.Struct) {
	switch u := types.Unalias(t).(type) {
	case *types.Named:
		if s, ok := u.Underlying().(*types.Struct); ok && typeName(u) != "time" {
			return u.Obj().Name(), s
		}
		if _, ok := u.Underlying().(*types.Struct); ok {
			return "", nil
		}
		return structOf(u.Underlying())
	case *types.Pointer:
		return structOf(u.Elem())
	case *types.Slice:
		return structOf(u.Elem())
	case *types.Map:
		return structOf(u.Elem())
	}
	return "", nil
}

// linked returns the name of a type with a link to its section.
func linked(name string, t types.Type) string {
	if inner, s := structOf(t); s != nil && inner != "" {
		return strings.TrimSuffix(name, inner) + "[" + inner + "](#" + strings.ToLower(inner) + ")"
	}
	return name
}

// fields writes the rows of a struct and adds the structs that it refers to.
func fields(out *bytes.Buffer, s *types.Struct, more map[string]*types.Struct) {
	for i := range s.NumFields() {
		f, tag := s.Field(i), reflect.StructTag(s.Tag(i))
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		if f.Embedded() && name == "" {
			_, inner := structOf(f.Type())
			fields(out, inner, more)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		if inner, s := structOf(f.Type()); s != nil && inner != "" {
			more[inner] = s
		}
		optional := ""
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			optional = "optional"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", name, linked(typeName(f.Type()), f.Type()), optional, cell(tag.Get("doc")))
	}
}

// TestJSONPageIsWhatTheTypesHold generates docs/reference/json.md from the types that
// each command prints.
func TestJSONPageIsWhatTheTypesHold(t *testing.T) {
	s := loadSources(t)
	var out bytes.Buffer
	out.WriteString("# Output of `--json`\n\nThis page is generated from the types that the CLI prints. With `--json` a command prints one JSON document on the standard output.\n" +
		"A command that fails prints a [problem](problems.md) as the last line of the standard error. New fields may be added; a field is\nnot removed or renamed within a major version. Times are RFC 3339.\n\n## Commands\n\n| command | document |\n|---|---|\n")
	todo := map[string]*types.Struct{}
	commands(func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || !cmd.Runnable() {
			return
		}
		node, found := s.node(cmd.Short), map[string]types.Type{}
		if node == nil {
			t.Fatalf("%s: no code has its short text %q", cmd.CommandPath(), cmd.Short)
		}
		s.printed(node, map[ast.Node]bool{}, found)
		if (len(found) == 0) != printsNoJSON[cmd.CommandPath()] {
			t.Errorf("%s prints the documents %v", cmd.CommandPath(), slices.Sorted(maps.Keys(found)))
			return
		}
		if text, ok := free[cmd.CommandPath()]; ok {
			fmt.Fprintf(&out, "| `%s` | %s |\n", cmd.CommandPath(), text)
			return
		}
		var names []string
		for _, name := range slices.Sorted(maps.Keys(found)) {
			if name == "any JSON" {
				t.Errorf("%s prints a document of no known type", cmd.CommandPath())
			}
			if st, ok := found[name].(*types.Struct); ok {
				todo[name] = st
				names = append(names, "["+name+"](#"+strings.ToLower(name)+")")
				continue
			}
			if inner, st := structOf(found[name]); st != nil {
				todo[inner] = st
			}
			names = append(names, linked(name, found[name]))
		}
		if len(names) > 0 {
			fmt.Fprintf(&out, "| `%s` | %s |\n", cmd.CommandPath(), strings.Join(names, " or "))
		}
	})
	sections, anchors := map[string]string{}, map[string]*types.Struct{}
	for len(todo) > 0 {
		name := slices.Sorted(maps.Keys(todo))[0]
		st := todo[name]
		delete(todo, name)
		if other := anchors[strings.ToLower(name)]; other != nil {
			if !types.Identical(other, st) {
				t.Errorf("two types are called %s", name)
			}
			continue
		}
		anchors[strings.ToLower(name)] = st
		var section bytes.Buffer
		fmt.Fprintf(&section, "\n## %s\n\n| field | type | | |\n|---|---|---|---|\n", name)
		fields(&section, st, todo)
		sections[name] = section.String()
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		out.WriteString(sections[name])
	}
	page.HoldFile(t, "docs/reference/json.md", out.Bytes())
}
