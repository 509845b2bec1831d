package appspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// maxEnv is the largest number of environment variables of a component.
const maxEnv = 50

// checkEnv checks an environment variable of the component: its name, and its value if it has no references.
func checkEnv(report reporter, place string, c Component, name string, value Value) {
	switch {
	case !envName.MatchString(name):
		report(place, "invalid-name", fmt.Sprintf("%s is not a valid name of an environment variable", yamlnode.Quote(name)), "Use letters, digits and underscores, up to 128; do not begin with a digit.")
	case component.Reserved(name) || strings.HasPrefix(strings.ToUpper(name), "FAIRLEAD_"):
		report(place, "reserved-name", fmt.Sprintf("the environment variable %s is set by the runner itself", yamlnode.Quote(name)), "Give a variable of the component in vars.")
	case slices.Contains(c.Secrets, name):
		report(place, "duplicate-name", fmt.Sprintf("the environment variable %s is in env and in secrets", yamlnode.Quote(name)), "Remove one of the two.")
	}
	if len(value.References()) > 0 {
		return
	}
	if v, _, err := value.Resolve(Scope{}); err != nil {
		report(place, "wrong-type", err.Error(), "")
	} else if _, err := EnvText(v); err != nil {
		report(place, "wrong-type", fmt.Sprintf("the environment variable %s %v", yamlnode.Quote(name), err), "Give lists and maps in vars.")
	}
}

var envName = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// EnvText returns the text of an environment variable with the resolved value. null is an empty text.
func EnvText(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		if strings.ContainsRune(v, 0) {
			return "", errors.New("contains a NUL character")
		}
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		return v.String(), nil
	}
	return "", errNoEnvText
}

var errNoEnvText = errors.New("must be a text, a number or a bool")
