package runnerspec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// checker reads nodes into configurations and collects their problems.
type checker struct {
	*yamlnode.Reader
	side     string       // the side that owns the file: controlSide or agentSide
	file     reflect.Type // the type that the file is read into
	warnings []Problem
	flags    []string // paths of the settings, by their places
}

func newChecker(file string) *checker {
	c := &checker{side: controlSide, file: reflect.TypeFor[Spec]()}
	c.Reader = yamlnode.NewReader(file, c.rules())
	return c
}

// rules returns the rules of configurations that field tags do not express.
func (c *checker) rules() yamlnode.Rules {
	return yamlnode.Rules{
		Checks: c.checks(),
		Unions: map[reflect.Type]yamlnode.Union{
			reflect.TypeFor[Configuration](): {Noun: "runner", Names: strs(Kinds()), Aliases: kindAliases(), New: func(name string) any { return newConfiguration(Kind(name)) }},
			reflect.TypeFor[Storage]():       {Noun: "state storage", Names: strs(StorageKinds()), New: func(name string) any { return newStorage(StorageKind(name)) }},
			reflect.TypeFor[ImageRegistry](): {Noun: "registry", Names: strs(RegistryKinds()), New: func(name string) any { return newRegistry(RegistryKind(name)) }},
		},
		Hint: func(_ string, f yamlnode.Field, _ yamlnode.Node) string {
			if f.Key == "identity" { // configurations of other products have this field
				return "The environment of an agent sets how the agent proves its identity. To admit the agent, use {runner.assign} or --aws-role."
			}
			return ""
		},
	}
}

func strs[K ~string](kinds []K) []string {
	var all []string
	for _, k := range kinds {
		all = append(all, string(k))
	}
	return all
}

func (c *checker) result(s *Spec) Result {
	c.sources(c.Problems)
	c.sources(c.warnings)
	r := Result{Problems: yamlnode.Finish(c.Problems), Warnings: yamlnode.Finish(c.warnings)}
	if len(r.Problems) == 0 {
		r.Spec = s
	}
	return r
}

func (c *checker) warn(where, code, message, hint string) {
	at := c.Node(where)
	c.warnings = append(c.warnings, Problem{File: c.File, Line: at.Line, Column: at.Column, Code: code, Message: message, Hint: hint})
}

// readFile reads YAML or JSON and applies the settings. ok is false if there are problems. The caller then cannot read
// the content further.
func (c *checker) readFile(src []byte, settings []string) (root yamlnode.Node, ok bool) {
	read := yamlnode.Read
	if json.Valid(src) {
		read = yamlnode.ReadJSON
	}
	root = c.Source(read, src, MaxFileSize, "")
	if root.IsNull() && len(settings) > 0 {
		root.Shape = yamlnode.Map // an empty file: the settings hold all fields
	}
	if len(c.Problems) == 0 && root.Shape != yamlnode.Map {
		c.WrongType(root, "", "a map", yamlnode.FieldList(c.file))
	}
	if len(c.Problems) == 0 {
		root = c.settings(root, settings)
	}
	return root, len(c.Problems) == 0
}

// spec reads the whole configuration.
func (c *checker) spec(root yamlnode.Node) *Spec {
	s := &Spec{}
	c.Put("", yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}}) // the place of missing fields
	c.Struct(root, s, "")
	if s.Group != "" && s.Install != "" {
		c.Report("install", "conflicting-fields", `both "group" and "install" are set`, "A runner serves either a group or one install.")
	}
	if s.Runner != nil && s.Storage != nil {
		c.runner(s.Runner)
		if ok, why := Compatible(s.Runner.Kind(), s.Storage.Kind()); !ok {
			c.Report("state_storage_configuration.type", "incompatible-storage",
				fmt.Sprintf("a runner of kind %s cannot use state storage %s: %s", s.Runner.Kind(), s.Storage.Kind(), why),
				"It can use: "+strings.Join(storagesOf(s.Runner.Kind()), ", ")+".")
		}
	}
	c.Controls(root)
	return s
}

// runner checks rules that cover more than one field. It reports fields that the side of this file does not own.
func (c *checker) runner(r Configuration) {
	others(r, c.side, func(path, hint string) {
		c.Report(path, "other-side", path+" cannot be set here", hint)
	})
	c.checkJob(r)
	r.check(c)
}
