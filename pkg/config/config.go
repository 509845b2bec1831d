// Package config declares the environment of each binary once: a struct whose
// tags give every variable its name, default, flag and documentation. Loading,
// the flags of a command line, `--help` and the reference page all come from
// the same tags, so they cannot disagree.
//
// Tags: `env` names the variable (as github.com/caarlos0/env reads it),
// `envDefault` its default, `flag` the command-line flag that overrides it
// (none for secrets: a command line is readable by every process), and `doc`
// says what it is, with units.
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
	Name    string // of the environment variable
	Flag    string // without dashes; "" if it has none
	Default string
	Doc     string
}

// Variables lists what the struct that cfg points to declares, in its order.
// It panics if cfg is not a pointer to a struct.
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

// Load fills the struct that cfg points to: a flag of args wins over the
// variable in environ ("name=value" strings, as os.Environ gives them), which
// wins over the default. It returns flag.ErrHelp if args ask for help, which it
// has then printed to fs.Output. The error names the variable that is wrong.
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
