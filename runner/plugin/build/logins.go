package build

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/runner/plugin"
)

// loginsFolder is the folder of a workspace with the logins for base images, while the image builder runs.
const loginsFolder = "logins"

// dockerHub is the name under which tools look for the login to Docker Hub.
const dockerHub = "https://index.docker.io/v1/"

// withLogins returns build with a file of the build's logins, which only its tool finds. The file is removed when build
// returns. The tool reads it itself and answers the image builder, so no program of a Dockerfile gets a login.
func withLogins(spec plugin.Spec, env plugin.Env, environ map[string]string, build func(ctx context.Context, source, layout string) error) func(ctx context.Context, source, layout string) error {
	if len(spec.Build.Logins) == 0 {
		return build
	}
	return func(ctx context.Context, source, layout string) error {
		folder := filepath.Join(env.Workspace, loginsFolder)
		if err := writeLogins(folder, spec.Build.Logins, env.Environ); err != nil {
			return fmt.Errorf("store the logins of base images: %w", err)
		}
		environ["DOCKER_CONFIG"] = folder
		err := build(ctx, source, layout)
		if rerr := os.RemoveAll(folder); err == nil && rerr != nil {
			err = fmt.Errorf("remove the logins of base images: %w", rerr)
		}
		return err
	}
}

// writeLogins writes the logins to the file that the tools of Docker read. names are the names of secrets, by host.
func writeLogins(folder string, names, secrets map[string]string) error {
	type auth struct {
		Auth string `json:"auth"`
	}
	auths := map[string]auth{}
	for host, name := range names {
		login := secrets[name]
		if !strings.Contains(login, ":") {
			login = defaultUser + ":" + login
		}
		if host == "docker.io" {
			host = dockerHub
		}
		auths[host] = auth{base64.StdEncoding.EncodeToString([]byte(login))}
	}
	text, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "config.json"), text, 0o600)
}
