package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// providerModule is the import path of the source; the download comes from a fork.
	providerModule = "github.com/hashicorp/terraform-provider-aws"
	// servicesFile lists the services. Each is a package; only this file and other
	// services import it.
	servicesFile = "internal/provider/sdkv2/service_packages_gen.go"
	// clientsFile has one method for each client of AWS's SDK.
	clientsFile = "internal/conns/awsclient_gen.go"
)

// trim copies the source of a provider with these services from the folder src to the
// empty folder dst: the packages that main imports, without tests. It changes two files:
// it removes the other services from the list and their clients from clientsFile.
func trim(src, dst string, services []string) error {
	whole, err := os.ReadFile(filepath.Join(src, servicesFile))
	if err != nil {
		return err
	}
	list, err := keepServices(whole, services)
	if err != nil {
		return fmt.Errorf("%s: %w", servicesFile, err)
	}
	packages, err := closure(src, list)
	if err != nil {
		return err
	}
	// A service finds the clients of an imported service by the list, so the list needs
	// the imported services, too.
	imported := slices.Clone(services)
	for dir := range packages {
		if name, ok := strings.CutPrefix(dir, "internal/service/"); ok && !strings.Contains(name, "/") {
			imported = append(imported, name)
		}
	}
	if list, err = keepServices(whole, imported); err != nil {
		return fmt.Errorf("%s: %w", servicesFile, err)
	}

	mentioned := map[string]bool{}
	for dir, p := range packages {
		for _, name := range slices.Concat(p.GoFiles, p.SFiles) {
			file := path.Join(dir, name)
			if file == clientsFile {
				continue
			}
			body, err := os.ReadFile(filepath.Join(src, file))
			if err != nil {
				return err
			}
			if file == servicesFile {
				body = list
			}
			for _, m := range clientCall.FindAllSubmatch(body, -1) {
				mentioned[string(m[1])] = true
			}
			if err := write(filepath.Join(dst, file), body); err != nil {
				return err
			}
		}
		if err := copyEmbedded(src, dst, dir, p.EmbedPatterns); err != nil {
			return err
		}
	}

	clients, err := os.ReadFile(filepath.Join(src, clientsFile))
	if err != nil {
		return err
	}
	if clients, err = keepClients(clients, mentioned); err != nil {
		return fmt.Errorf("%s: %w", clientsFile, err)
	}
	if err := write(filepath.Join(dst, clientsFile), clients); err != nil {
		return err
	}
	return errors.Join(copyFile(src, dst, "go.mod"), copyFile(src, dst, "go.sum"))
}

// clientCall matches the calls of the methods of clientsFile. A wrong match only keeps an
// unneeded client.
var clientCall = regexp.MustCompile(`\.(\w+Client)\b`)

// closure returns main and all packages of the module that it imports, by folder. It reads
// list in place of servicesFile.
func closure(src string, list []byte) (map[string]*build.Package, error) {
	ctxt := build.Default
	ctxt.CgoEnabled = false
	ctxt.OpenFile = func(name string) (io.ReadCloser, error) {
		if name == filepath.Join(src, servicesFile) {
			return io.NopCloser(bytes.NewReader(list)), nil
		}
		return os.Open(name)
	}
	found := map[string]*build.Package{}
	queue := []string{"."}
	for len(queue) > 0 {
		dir := queue[0]
		queue = queue[1:]
		if found[dir] != nil {
			continue
		}
		p, err := ctxt.ImportDir(filepath.Join(src, dir), 0)
		if err != nil {
			return nil, err
		}
		found[dir] = p
		for _, i := range p.Imports {
			if below, ok := strings.CutPrefix(i, providerModule+"/"); ok {
				queue = append(queue, below)
			}
		}
	}
	return found, nil
}

// copyEmbedded copies the files that a package embeds.
func copyEmbedded(src, dst, dir string, patterns []string) error {
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(src, dir, strings.TrimPrefix(pattern, "all:")))
		if err != nil {
			return err
		}
		for _, name := range names {
			below, err := filepath.Rel(src, name)
			if err != nil {
				return err
			}
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if info.IsDir() {
				err = os.CopyFS(filepath.Join(dst, below), os.DirFS(name))
			} else {
				err = copyFile(src, dst, below)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(src, dst, name string) error {
	body, err := os.ReadFile(filepath.Join(src, name))
	if err != nil {
		return err
	}
	return write(filepath.Join(dst, name), body)
}

func write(name string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, body, 0o644)
}

// keepServices removes from body, the text of servicesFile, all services except these.
func keepServices(body []byte, services []string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", body, 0)
	if err != nil {
		return nil, err
	}
	var cuts []cut
	kept := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, element := range list.Elts {
			call, ok := element.(*ast.CallExpr)
			if !ok {
				continue
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "ServicePackage" {
				continue
			}
			if name, ok := f.X.(*ast.Ident); ok && slices.Contains(services, name.Name) {
				kept[name.Name] = true
				continue
			}
			cuts = append(cuts, line(fset, body, element))
		}
		return false
	})
	for _, service := range services {
		if !kept[service] {
			return nil, fmt.Errorf("the file does not list the service %s", service)
		}
	}
	return without(body, cuts)
}

// keepClients removes from body, the text of clientsFile, each method that is not in
// mentioned.
func keepClients(body []byte, mentioned map[string]bool) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", body, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var cuts []cut
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && !mentioned[f.Name.Name] {
			cuts = append(cuts, line(fset, body, f))
		}
	}
	if len(cuts) == 0 {
		return nil, errors.New("the file has no methods to remove")
	}
	return without(body, cuts)
}

// cut is a range of bytes to remove.
type cut struct{ from, to int }

// line returns the range of the lines of n.
func line(fset *token.FileSet, body []byte, n ast.Node) cut {
	from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
	from = bytes.LastIndexByte(body[:from], '\n') + 1
	if end := bytes.IndexByte(body[to:], '\n'); end >= 0 {
		to += end + 1
	}
	return cut{from, to}
}

// without removes the ranges, which must be in order, and then the unused imports.
func without(body []byte, cuts []cut) ([]byte, error) {
	body = remove(body, cuts)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", body, 0)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	cuts = nil
	for _, i := range file.Imports {
		name := path.Base(strings.Trim(i.Path.Value, `"`))
		if i.Name != nil {
			name = i.Name.Name
		}
		if !used[name] {
			cuts = append(cuts, line(fset, body, i))
		}
	}
	return remove(body, cuts), nil
}

func remove(body []byte, cuts []cut) []byte {
	var kept []byte
	at := 0
	for _, c := range cuts {
		kept = append(kept, body[at:c.from]...)
		at = c.to
	}
	return append(kept, body[at:]...)
}
