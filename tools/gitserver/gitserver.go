// Package gitserver serves git repositories over HTTP with git's own server program. Tests use it.
package gitserver

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Handler serves the repositories below the folder root, as /NAME. If password is not "", a request needs it by basic
// authentication, with any user name.
func Handler(root, password string) (http.Handler, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("find git: %w", err)
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"}, InheritEnv: []string{"PATH"}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		if password != "" && subtle.ConstantTimeCompare([]byte(given), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "a password is needed", http.StatusUnauthorized)
			return
		}
		r.Header.Set("Git-Protocol", r.Header.Get("Git-Protocol")) // the backend reads it from its environment
		backend.ServeHTTP(w, r)
	}), nil
}

// Repository is a repository with files, for a test.
type Repository struct{ dir string }

// New makes an empty repository in the folder dir.
func New(dir string) (Repository, error) {
	r := Repository{dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, fmt.Errorf("make a repository: %w", err)
	}
	_, err := r.git("init", "--quiet", "--initial-branch=main", ".")
	return r, err
}

// Commit commits the files, by path, and returns the commit. A path that ends in "*" is the path of an executable
// file. tags name the commit.
func (r Repository) Commit(files map[string]string, tags ...string) (string, error) {
	for name, content := range files {
		path, executable := strings.CutSuffix(name, "*")
		mode := os.FileMode(0o600)
		if executable {
			mode = 0o700
		}
		full := filepath.Join(r.dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return "", fmt.Errorf("write a file of a commit: %w", err)
		}
		if err := os.WriteFile(full, []byte(content), mode); err != nil {
			return "", fmt.Errorf("write a file of a commit: %w", err)
		}
	}
	for _, args := range [][]string{{"add", "--all"}, {"commit", "--quiet", "--allow-empty", "--message=a change"}} {
		if _, err := r.git(args...); err != nil {
			return "", err
		}
	}
	for _, tag := range tags {
		if _, err := r.git("tag", "--force", "--annotate", "--message=a release", tag); err != nil {
			return "", err
		}
	}
	return r.git("rev-parse", "HEAD")
}

func (r Repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
		"GIT_AUTHOR_DATE=2026-11-01T12:00:00Z", "GIT_COMMITTER_DATE=2026-11-01T12:00:00Z"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
