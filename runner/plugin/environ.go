package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
)

// Environ converts "name=value" entries to a map by name.
func Environ(environ []string) map[string]string {
	env := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env
}

// WriteVars writes the input variables to a file as a JSON object. Only this user can read the file. The variables must not
// be in a command line, which every process on the machine can read.
func WriteVars(path string, vars map[string]events.SpecVar) error {
	values := make(map[string]json.RawMessage, len(vars))
	for name, v := range vars {
		values[name] = v.Value
	}
	b, err := json.Marshal(values)
	if err != nil {
		return Errorf(fairlead.ReasonSpecInvalid, "the job spec has a variable that is not JSON")
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write the variables: %w", err)
	}
	return nil
}

// Digest returns the digest that identifies an approved plan: "sha256:" and 64 hex digits.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// alwaysPassed names the variables of the runner's environment that every tool gets, to find programs and the network.
var alwaysPassed = []string{"PATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", attempt.MarkVariable}

// BaseEnv returns the part of a tool's environment that does not depend on its job. HOME has the value home. From environ it
// takes the variables that every tool gets and the variables in names, which the operator sets.
func BaseEnv(environ map[string]string, names []string, home string) map[string]string {
	env := map[string]string{"HOME": home}
	for _, list := range [][]string{alwaysPassed, names} {
		for _, name := range list {
			if v, ok := environ[name]; ok {
				env[name] = v
			}
		}
	}
	return env
}

// Complete adds the step's variables, e.Environ, to a tool's environment. They override existing values. An empty value removes
// the variable.
func (e Env) Complete(env map[string]string) {
	maps.Copy(env, e.Environ)
	maps.DeleteFunc(env, func(name, _ string) bool { v, ok := e.Environ[name]; return ok && v == "" })
}
