package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
)

// Inputs holds digests of a component's source and variables. A later comparison shows which of them changed. The
// digests contain no value. Each digest of a variable is keyed with Salt, so that the digest of a short secret cannot be
// looked up in a table.
type Inputs struct {
	Salt   []byte            `json:"salt"`
	Source string            `json:"source"` // digest of the artifact: sha256:…
	Vars   map[string][]byte `json:"vars,omitempty"`
}

// InputsOf returns the Inputs of a component with this artifact and these variables.
func InputsOf(salt []byte, source string, vars map[string]SpecVar) Inputs {
	in := Inputs{Salt: salt, Source: source, Vars: make(map[string][]byte, len(vars))}
	for name, v := range vars {
		in.Vars[name] = in.digest(name, v)
	}
	return in
}

func (in Inputs) digest(name string, v SpecVar) []byte {
	h := hmac.New(sha256.New, in.Salt)
	h.Write([]byte(name + "\n"))
	h.Write(v.Value)
	return h.Sum(nil)
}

// Changed compares the artifact and the variables with in, and lists the differences: "source" if the artifact differs,
// then each variable as "vars.NAME", each option as "options.NAME", each environment variable as "env.NAME" and the image as "image" that
// has another value, is new or was removed, sorted by name.
func (in Inputs) Changed(source string, vars map[string]SpecVar) []string {
	var changed []string
	if in.Source != source {
		changed = append(changed, "source")
	}
	names := maps.Clone(in.Vars)
	if names == nil {
		names = map[string][]byte{}
	}
	for name := range vars {
		names[name] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v, ok := vars[name]
		if !ok || !hmac.Equal(in.Vars[name], in.digest(name, v)) {
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
