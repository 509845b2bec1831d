package terraform

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/sessionpolicy"
	"github.com/fairlead/fairlead/runner/plugin"
)

// shownModule is a module of the configuration in the tool's plan description.
type shownModule struct {
	Resources []struct {
		Mode         string `json:"mode"` // managed, data or ephemeral
		Type         string `json:"type"`
		Name         string `json:"name"`
		Provisioners []struct {
			Type string `json:"type"`
		} `json:"provisioners"`
	} `json:"resources"`
	Calls map[string]struct {
		Module shownModule `json:"module"`
	} `json:"module_calls"`
}

// useOf returns what the apply of a plan uses. set has all changes of the plan. A tool opens the ephemeral resources of a module in each
// apply, and a plan has no change of them.
func useOf(p *shownPlan, set *changeset.Builder) plugin.Use {
	u := plugin.Use{Kinds: sessionpolicy.Kinds(set.All())}
	programs := map[string]bool{} // addresses in the configuration
	var walk func(m shownModule, at string)
	walk = func(m shownModule, at string) {
		for _, r := range m.Resources {
			if r.Mode == "ephemeral" {
				u.Kinds = append(u.Kinds, sessionpolicy.Kinds([]changeset.Change{{Kind: r.Type, Action: changeset.Read}})...)
			}
			for _, by := range r.Provisioners {
				programs[at+r.Type+"."+r.Name] = programs[at+r.Type+"."+r.Name] || by.Type == policy.LocalExec
			}
		}
		for name, call := range m.Calls {
			walk(call.Module, at+"module."+name+".")
		}
	}
	walk(p.Configuration.Root, "")
	for _, c := range set.All() {
		// A provisioner runs when an object is created or deleted. The program of a data source that the apply reads is one too.
		runs := programs[inConfiguration(c.Address)] && (c.Action == changeset.Create || c.Action == changeset.Replace || c.Action == changeset.Delete)
		if runs || c.Kind == policy.External && c.Action == changeset.Read {
			u.Programs = append(u.Programs, c.Address)
		}
	}
	slices.Sort(u.Kinds)
	u.Kinds = slices.Compact(u.Kinds)
	return u
}

// inConfiguration returns the address of an object without its keys: module.a["x"].b.c[0] is module.a.b.c in the configuration.
func inConfiguration(address string) string {
	var b strings.Builder
	depth, quoted, escaped := 0, false, false
	for _, r := range address {
		switch {
		case escaped:
			escaped = false
			continue
		case quoted && r == '\\':
			escaped = true
		case depth > 0 && r == '"':
			quoted = !quoted
		case quoted:
		case r == '[':
			depth++
		case r == ']':
			depth--
			continue
		}
		if depth == 0 {
			b.WriteRune(r)
		}
	}
	return b.String()
}
