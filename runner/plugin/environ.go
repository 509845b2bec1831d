package plugin

import (
	"maps"

	"github.com/fairlead/fairlead/runner/attempt"
)

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
