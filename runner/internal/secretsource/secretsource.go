// Package secretsource reads a customer's secrets for one job from their stores. It runs in the job's step: neither
// the agent nor the control plane gets a value.
package secretsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// maxSecret is the maximum size of a secret in bytes. Secrets Manager has the same limit. The system allows 128 KiB for
// one environment variable.
const maxSecret = 64 << 10

// Source reads secrets for one step.
type Source struct {
	// Given has the values that the cluster read from Kubernetes Secrets for the step, by the variables of their references.
	Given map[string]string
	// AWS reads a secret from a store of AWS; see awsstore. nil: none is read. It is a function because the clients of these
	// stores delay the start of each step that links them.
	AWS func(ctx context.Context, region string, ref runnerspec.Reference) (string, error)
}

// Read returns the value of a secret. The parameter region is for references to a store of AWS without a region; "" means the
// region of the process.
// Errors contain no part of the value.
func (s Source) Read(ctx context.Context, region string, ref runnerspec.Reference) (string, error) {
	value, err := s.whole(ctx, region, ref)
	if err != nil {
		return "", err
	}
	if ref.Key != "" {
		if value, err = field(value, ref.Key); err != nil {
			return "", err
		}
	}
	switch {
	case value == "":
		return "", errors.New("it is empty")
	case len(value) > maxSecret:
		return "", fmt.Errorf("it has more than %d bytes", maxSecret)
	case bytes.IndexByte([]byte(value), 0) >= 0:
		return "", errors.New("it contains a NUL byte, which an environment variable cannot have")
	}
	return value, nil
}

// whole returns the secret with all its fields.
func (s Source) whole(ctx context.Context, region string, ref runnerspec.Reference) (string, error) {
	switch ref.Store {
	case runnerspec.StoreFile:
		return file(ref.Name)
	case runnerspec.StoreKubernetes:
		value, ok := s.Given[ref.Variable()]
		if !ok {
			name, key, _ := strings.Cut(ref.Name, "/")
			return "", fmt.Errorf("the namespace of jobs has no Secret %s with the key %s: create it there, or correct the reference", name, key)
		}
		return value, nil
	}
	if s.AWS == nil {
		return "", errors.New("this program of the runner has no client of AWS: install the same release of all the runner's programs")
	}
	return s.AWS(ctx, region, ref)
}

// file returns the content of a file without a final line break, which editors add.
func file(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+2)) // a byte more than a secret with its line break
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(b, "\r\n")), nil
}

// field returns a field of a JSON object: a text as it is, any other value as JSON.
func field(object, key string) (string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(object), &fields) != nil { // the error would quote the secret
		return "", fmt.Errorf("it is no JSON object, so it has no field %q", key)
	}
	raw, ok := fields[key]
	if !ok {
		return "", fmt.Errorf("its JSON object has no field %q", key)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	return string(raw), nil
}
