// Package config declares the environment of each binary once, in a struct. Its tags
// give every variable a name, default, flag and documentation. Loading, the flags of
// the command line, `--help` and the reference page use the same tags, so they cannot
// disagree.
//
// The tags are:
//   - `env`: the name of the variable, in the syntax of github.com/caarlos0/env;
//   - `envDefault`: the default of the variable;
//   - `flag`: the command-line flag that overrides the variable. Variables with secrets
//     have no flag, because every process can read a command line;
//   - `doc`: the meaning of the variable, with units.
package config

import (
	"flag"
	"fmt"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Variable documents one variable of a binary's environment.
type Variable struct {
	Name    string // name of the environment variable
	Flag    string // without dashes; "" if there is none
	Default string
	Doc     string
}

// Variables returns the variables that the struct at cfg declares, in its order. It
// panics if cfg is not a pointer to a struct.
func Variables(cfg any) []Variable {
	t := reflect.TypeOf(cfg).Elem()
	var out []Variable
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		if name == "" {
			continue
		}
		out = append(out, Variable{Name: name, Flag: f.Tag.Get("flag"), Default: f.Tag.Get("envDefault"), Doc: f.Tag.Get("doc")})
	}
	return out
}

// Load fills the struct at cfg. A flag in args overrides the variable in environ
// ("name=value" strings, as os.Environ returns them). A variable overrides the default. If
// args ask for help, Load prints it to fs.Output and returns flag.ErrHelp. An error
// names the wrong variable.
func Load(cfg any, fs *flag.FlagSet, args, environ []string) error {
	vars := env.ToMap(environ)
	values := map[string]*string{}
	for _, v := range Variables(cfg) {
		if v.Flag != "" {
			values[v.Name] = fs.String(v.Flag, "", usage(v))
		}
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for name, value := range values {
		if *value != "" {
			vars[name] = *value
		}
	}
	if err := env.ParseWithOptions(cfg, env.Options{Environment: vars}); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return nil
}

func usage(v Variable) string {
	s := v.Doc + " ($" + v.Name
	if v.Default != "" {
		s += ", default " + v.Default
	}
	return s + ")"
}
