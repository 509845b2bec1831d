package appspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// module holds the declarations of a component's module that app.yaml must agree with.
type module struct {
	variables map[string]bool // by name; true if the variable requires a value
	outputs   map[string]bool
}

// The limits within which a module's declarations are read. A larger module is valid, but app.yaml is not checked
// against it.
const (
	maxModuleFiles = 200     // files of one module
	maxModuleSize  = 2 << 20 // bytes of one module's files
)

// errNotRead reports that a module's declarations are not known.
var errNotRead = errors.New("the module is not read")

// readModule collects the variables and outputs that the files in dir declare. It reports errors that every tool would
// refuse, in these files and in the app's modules that the files call. shown is dir as the author wrote it. readModule
// finds declarations in the tokens of a file, so it finds them even in a file that does not parse.
func readModule(fsys fs.FS, dir, shown string, names []string) (module, Problems, error) {
	r := &moduleReader{fsys: fsys, root: dir, shown: shown, size: maxModuleSize, files: maxModuleFiles}
	m, err := r.read(dir, names)
	for _, called := range r.called() {
		if names, _, err := moduleFiles(fsys, called); err == nil {
			_, _ = r.read(called, tfmodule.Effective(names)) // only the calling module and the tool need its declarations
		}
	}
	return m, r.problems, err
}

// readBounded returns the content of a regular file of at most limit bytes.
func readBounded(fsys fs.FS, name string, limit int) ([]byte, error) {
	// Reading a pipe or a device could block, or never end.
	if info, err := fs.Stat(fsys, name); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errNotRegular)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // an error of Close has no effect on a file that was only read
	src, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(src) > limit {
		err = errTooLarge
	}
	return src, err
}

// The errors of readBounded.
var (
	errNotRegular = errors.New("it is not a regular file")
	errTooLarge   = errors.New("it is too large")
)

// addHCL adds the declarations of an HCL file.
func (m module) addHCL(tokens hclsyntax.Tokens) {
	tfmodule.Walk(tokens, func(kind, label, argument string, _ hclsyntax.Tokens) {
		switch {
		case kind == "output":
			m.outputs[label] = true
		case kind == "variable" && argument == "":
			if _, known := m.variables[label]; !known {
				m.variables[label] = true
			}
		case kind == "variable" && argument == "default":
			m.variables[label] = false
		}
	})
}

// addJSON adds the declarations of a file in JSON syntax: an object keyed by label, or a list of such objects.
func (m module) addJSON(src []byte) error {
	var file struct {
		Variable, Output json.RawMessage
	}
	if err := json.Unmarshal(src, &file); err != nil {
		return err
	}
	each := func(raw json.RawMessage, add func(label string, body json.RawMessage)) error {
		if len(raw) == 0 {
			return nil
		}
		var many []map[string]json.RawMessage
		if raw[0] == '{' {
			many = make([]map[string]json.RawMessage, 1)
			if err := json.Unmarshal(raw, &many[0]); err != nil {
				return err
			}
		} else if err := json.Unmarshal(raw, &many); err != nil {
			return err
		}
		for _, blocks := range many {
			for label, body := range blocks {
				add(label, body)
			}
		}
		return nil
	}
	return errors.Join(
		each(file.Variable, func(label string, body json.RawMessage) {
			var fields map[string]json.RawMessage
			// If the body is not an object, the tool reports it. This code then takes the variable for one that requires no value.
			err := json.Unmarshal(body, &fields)
			_, hasDefault := fields["default"]
			m.variables[label] = err == nil && !hasDefault
		}),
		each(file.Output, func(label string, _ json.RawMessage) { m.outputs[label] = true }),
	)
}

// checkModules reports where app.yaml and the modules disagree: variables that are set but not declared, variables
// without a default that are not set, and references to outputs that are not declared. modules holds the modules that
// could be read.
func checkModules(app *App, modules map[string]module, report reporter) {
	for _, c := range app.Parts() {
		where := pathOf(c)
		if m, ok := modules[c.Name]; ok {
			declared := slices.Collect(maps.Keys(m.variables))
			for _, name := range slices.Sorted(maps.Keys(c.Vars)) {
				if _, ok := m.variables[name]; !ok {
					report(where+".vars."+name, "unknown-variable", fmt.Sprintf("the module of component %q has no variable %s", c.Name, yamlnode.Quote(name)),
						yamlnode.DidYouMean(name, "variables", declared))
				}
			}
			secrets := map[string]bool{}
			for i, secret := range c.Secrets {
				name := runnerspec.SecretVariable(secret)
				secrets[name] = true
				if _, ok := m.variables[name]; name != "" && !ok {
					report(fmt.Sprintf("%s.secrets.%d", where, i+1), "unknown-variable", fmt.Sprintf("the module of component %q has no variable %s", c.Name, yamlnode.Quote(name)),
						yamlnode.DidYouMean(name, "variables", declared))
				}
			}
			for _, name := range slices.Sorted(maps.Keys(m.variables)) {
				if _, set := c.Vars[name]; m.variables[name] && !set && !secrets[name] {
					report(where, "missing-variable", fmt.Sprintf("the module of component %q needs the variable %s", c.Name, yamlnode.Quote(name)),
						"Set it under vars, or give it a default in the module. If it is a secret of the customer, list it under secrets.")
				}
			}
		}
		values := c.Values()
		for _, name := range slices.Sorted(maps.Keys(values)) {
			for _, ref := range values[name].References() {
				m, ok := modules[ref.Name]
				if ref.Namespace != Components || !ok || m.outputs[ref.Output] {
					continue
				}
				report(where+fieldOf(name)+"|"+ref.String(), "unknown-output", fmt.Sprintf("the module of component %q has no output %s", ref.Name, yamlnode.Quote(ref.Output)),
					yamlnode.DidYouMean(ref.Output, "outputs", slices.Collect(maps.Keys(m.outputs))))
			}
		}
	}
}
