package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
)

// Inputs states what a component's last apply used, and which of it is the same now. It holds no value, and nothing from which
// a value could be guessed: the control plane compares fingerprints, whose key is not in the spec.
type Inputs struct {
	Source string          `json:"source"`         // digest of the artifact: sha256:…
	Same   map[string]bool `json:"same,omitempty"` // for each variable of the last apply: whether this job gets the same value

	// Salt and Vars are sent by earlier control planes in place of Same: a digest of each variable, with Salt as its key.
	Salt []byte            `json:"salt,omitempty"`
	Vars map[string][]byte `json:"vars,omitempty"`
}

// same reports whether the variable had this value in the last apply.
func (in Inputs) same(name string, v SpecVar) bool {
	if in.Vars == nil {
		return in.Same[name]
	}
	h := hmac.New(sha256.New, in.Salt)
	h.Write([]byte(name + "\n"))
	h.Write(v.Value)
	return hmac.Equal(in.Vars[name], h.Sum(nil))
}

// Changed compares the artifact and the variables of the job with in, and lists the differences: "source" if the artifact differs,
// then each variable as "vars.NAME", each option as "options.NAME", each environment variable as "env.NAME" and the image as "image" that
// has another value, is new or was removed, sorted by name.
func (in Inputs) Changed(source string, vars map[string]SpecVar) []string {
	var changed []string
	if in.Source != source {
		changed = append(changed, "source")
	}
	names := slices.Concat(slices.Collect(maps.Keys(in.Same)), slices.Collect(maps.Keys(in.Vars)), slices.Collect(maps.Keys(vars)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if v, ok := vars[name]; !ok || !in.same(name, v) {
			if name == imageInput {
				name = strings.TrimPrefix(name, "job.")
			} else if !strings.HasPrefix(name, optionPrefix) && !strings.HasPrefix(name, envPrefix) {
				name = "vars." + name
			}
			changed = append(changed, name)
		}
	}
	return changed
}
