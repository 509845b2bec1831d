package tfmodule

import (
	stdjson "encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// ShippedFile is the file with the Shipped of an artifact, in the folder that also has the packages.
const ShippedFile = "modules.json"

// Shipped lists the modules of other places that an artifact has.
type Shipped struct {
	V       int             `json:"v"` // 1
	Modules []ShippedModule `json:"modules"`
}

// ShippedModule is one call of a module of another place, or of a local module in which there is such a call: the tools
// take a module as installed only if its caller is.
type ShippedModule struct {
	Key     string `json:"key"`               // the names of the calls from the component to the module, with dots between them
	Source  string `json:"source"`            // as the call has it
	Version string `json:"version,omitempty"` // of a module in a registry
	Package string `json:"package,omitempty"` // the folder of what was fetched; several modules can have the same. "": that of the caller
	Folder  string `json:"folder"`            // of the module in the package, or in the archive if the component has it; "." is its top
}

// Owner returns the module of another place in whose package the module with the key is; found is false if the component
// has it.
func (s Shipped) Owner(key string) (owner ShippedModule, found bool) {
	for {
		i := slices.IndexFunc(s.Modules, func(m ShippedModule) bool { return m.Key == key && m.Package != "" })
		if i >= 0 {
			return s.Modules[i], true
		}
		end := strings.LastIndexByte(key, '.')
		if end < 0 {
			return ShippedModule{}, false
		}
		key = key[:end]
	}
}

// Encode returns the content of ShippedFile. The same modules have the same content.
func (s Shipped) Encode() ([]byte, error) {
	s.V = 1
	slices.SortFunc(s.Modules, func(a, b ShippedModule) int { return strings.Compare(a.Key, b.Key) })
	return stdjson.Marshal(s)
}

var packageName = pattern.New(`^[0-9]{1,4}$`)

// ParseShipped reads the content of ShippedFile. Keys and paths of the result are safe parts of paths.
func ParseShipped(content []byte) (Shipped, error) {
	var s Shipped
	if err := stdjson.Unmarshal(content, &s); err != nil {
		return Shipped{}, fmt.Errorf("read the list of modules: %w", err)
	}
	if s.V != 1 {
		return Shipped{}, fmt.Errorf("the list of modules has version %d, want 1", s.V)
	}
	seen := map[string]bool{}
	for _, m := range s.Modules {
		if !validKey(m.Key) || seen[m.Key] || m.Package != "" && !packageName.MatchString(m.Package) || !fs.ValidPath(m.Folder) {
			return Shipped{}, fmt.Errorf("the list of modules has an invalid entry %.100q", m.Key)
		}
		seen[m.Key] = true
	}
	return s, nil
}

func validKey(key string) bool {
	for name := range strings.SplitSeq(key, ".") {
		if !hclsyntax.ValidIdentifier(name) {
			return false
		}
	}
	return true
}
