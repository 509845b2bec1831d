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

// Environ returns the variables of an environment, each "name=value", by name.
func Environ(environ []string) map[string]string {
	env := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env
}

// WriteVars writes the input variables to a file, as a JSON object that only this user
// may read: every process of the machine may read a command line.
func WriteVars(path string, vars map[string]events.SpecVar) error {
	values := make(map[string]json.RawMessage, len(vars))
	for name, v := range vars {
		values[name] = v.Value
	}
	b, err := json.Marshal(values)
	if err != nil {
		return Errorf(fairlead.ReasonSpecInvalid, "the job spec holds a variable that is not JSON")
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write the variables: %w", err)
	}
	return nil
}

// Digest returns the digest by which a plan is approved: "sha256:" and 64 hex digits.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// passed are the variables of the runner's own environment that each tool gets: by
// which programs are found and the network is reached.
var passed = []string{"PATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", attempt.MarkVariable}

// BaseEnv is the environment of a tool besides what its job needs: its home, and of
// the runner's own what each tool gets, and what the operator names.
func BaseEnv(own map[string]string, named []string, home string) map[string]string {
	env := map[string]string{"HOME": home}
	for _, names := range [][]string{passed, named} {
		for _, name := range names {
			if v, ok := own[name]; ok {
				env[name] = v
			}
		}
	}
	return env
}

// Complete adds to a tool's environment what the step decides, which wins.
func (e Env) Complete(env map[string]string) {
	maps.Copy(env, e.Environ)
	maps.DeleteFunc(env, func(name, _ string) bool { v, ok := e.Environ[name]; return ok && v == "" })
}
