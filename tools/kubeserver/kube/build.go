package kube

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// version is that of tools/kubernetes/go.mod.
const version = "v1.36.3"

// programs are what a cluster without nodes takes.
func programs() map[string]string {
	return map[string]string{
		"etcd":                    "go.etcd.io/etcd/server/v3",
		"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
		"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	}
}

// folder is where the programs are, once they are built.
func folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for Kubernetes: %w", err)
	}
	return filepath.Join(cache, "fairlead", "kubernetes-"+version), nil
}

// built returns the folder of the programs if all are there.
func built() (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	for name := range programs() {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("there is no %s in %s", name, dir)
		}
	}
	return dir, nil
}

// Build builds what is missing and returns the folder of the programs. It must
// run in this repository. Progress goes to log.
func Build(log io.Writer) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/fairlead/fairlead").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for name, pkg := range programs() {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		fmt.Fprintf(log, "building %s of Kubernetes %s from Go modules, once\n", name, version)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion="+version, "-o", path+".part", pkg)
		cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "tools", "kubernetes")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		if err := os.Rename(path+".part", path); err != nil {
			return "", err
		}
	}
	return dir, nil
}
