package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// oldestVersion is the oldest version of a tool on PATH that the command uses. It is the
// first version of OpenTofu. Older tools lack parts of the language that the examples use.
const oldestVersion = "1.6.0"

// probeTimeout is the longest time of `version`, which takes a fraction of a second.
const probeTimeout = 30 * time.Second

// usable returns an error with the reason if the tool at path cannot be used.
func usable(ctx context.Context, path string) error {
	version, err := versionOf(ctx, path)
	if err != nil {
		return err
	}
	if semver.Compare("v"+version, "v"+oldestVersion) < 0 {
		return fmt.Errorf("its version %s is older than %s", version, oldestVersion)
	}
	return nil
}

// isPinned returns an error with the reason if the file at path is not the pinned
// OpenTofu.
func isPinned(ctx context.Context, path string) error {
	version, err := versionOf(ctx, path)
	if err == nil && version != pinnedVersion {
		err = fmt.Errorf("its version is %s", version)
	}
	return err
}

// versionOf runs the tool and returns its version.
func versionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "-json")
	cmd.Env = toolEnv(os.Environ())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run `%s version -json`: %w %s", path, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var answer struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		return "", fmt.Errorf("read the answer of `%s version -json`: %w", path, err)
	}
	if !semver.IsValid("v" + answer.Version) {
		return "", fmt.Errorf("the answer of `%s version -json` has no valid version", path)
	}
	return answer.Version, nil
}

// toolEnv returns the environment for the tool. It removes TF_CLI_CONFIG_FILE if that file
// does not exist, because the tool's warning would corrupt the JSON on stdout. It also
// turns off the check for updates.
func toolEnv(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, ok := strings.CutPrefix(kv, "TF_CLI_CONFIG_FILE=")
		if !ok {
			return false
		}
		_, err := os.Stat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
	return append(env, "CHECKPOINT_DISABLE=1")
}
