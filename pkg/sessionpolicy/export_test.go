package sessionpolicy

import (
	"maps"
	"slices"
	"strings"
)

// Mapped returns all types that the table has, sorted.
func Mapped() []string {
	kinds := map[string]bool{}
	for name := range services().entries {
		if strings.HasPrefix(name, classic) {
			kinds[name] = true
			continue
		}
		kinds[classic+name], kinds[cloud+name] = true, true
	}
	for kind := range services().same {
		kinds[kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}
