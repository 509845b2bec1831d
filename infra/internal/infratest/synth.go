// Package infratest synthesizes stacks as a deployment does. It checks the permissions
// that the templates give, and the rules that the templates must follow.
package infratest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/goccy/go-yaml"
)

// Template is a CloudFormation template.
type Template struct {
	File      string // where it was synthesized
	Resources map[string]Resource
	Raw       map[string]any
}

// Resource is a resource of a template.
type Resource struct {
	Type           string
	Condition      string
	DeletionPolicy string
	UpdatePolicy   map[string]any // with references
	Properties     map[string]any
}

// Stays reports whether the resource is retained when its stack is deleted. The
// rollback of its creation may still remove it.
func (r Resource) Stays() bool {
	return r.DeletionPolicy == "Retain" || r.DeletionPolicy == "RetainExceptOnCreate"
}

// Synth synthesizes the stack of build into the folder dir, with the rules of
// cdk-nag's AWS Solutions pack. The result findings has the messages of these
// rules that are not suppressed.
func Synth(dir string, build func(constructs.Construct) (awscdk.Stack, error)) (t Template, findings []string, err error) {
	t, err = synth(dir, build, func(app awscdk.App) {
		awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true), Reports: jsii.Bool(false)}), nil)
	})
	if err != nil {
		return Template{}, nil, err
	}
	findings, err = nagFindings(dir)
	return t, findings, err
}

// SynthVariant is Synth without the rules, for tests that compare a variant of a stack that Synth checks.
func SynthVariant(dir string, build func(constructs.Construct) (awscdk.Stack, error)) (Template, error) {
	return synth(dir, build, func(awscdk.App) {})
}

func synth(dir string, build func(constructs.Construct) (awscdk.Stack, error), check func(awscdk.App)) (Template, error) {
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(dir), AnalyticsReporting: jsii.Bool(false),
		PostCliContext: &map[string]any{"aws:cdk:disable-stack-trace": true}})
	stack, err := build(app)
	if err != nil {
		return Template{}, err
	}
	check(app)
	app.Synth(nil)
	return Read(filepath.Join(dir, *stack.ArtifactId()+".template.json"))
}

// Read reads a template in JSON or YAML.
func Read(file string) (Template, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Template{}, err
	}
	if filepath.Ext(file) == ".yaml" {
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return Template{}, fmt.Errorf("template %s: %w", file, err)
		}
	}
	t := Template{File: file}
	if err := errors.Join(json.Unmarshal(text, &t.Raw), json.Unmarshal(text, &t)); err != nil {
		return Template{}, fmt.Errorf("template %s: %w", file, err)
	}
	return t, nil
}

// nagFindings returns the errors and warnings that the synthesis attached to
// constructs.
func nagFindings(dir string) (found []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.metadata.json"))
	if err != nil {
		return nil, err
	}
	manifest := filepath.Join(dir, "manifest.json")
	for _, file := range append(files, manifest) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var any any
		if err := json.Unmarshal(text, &any); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found = append(found, annotations("", any)...)
	}
	return found, nil
}

// annotations finds the entries {"type": "aws:cdk:error", "data": …} at any depth; the
// key above an entry is the construct's path.
func annotations(path string, v any) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		if kind, _ := v["type"].(string); kind == "aws:cdk:error" || kind == "aws:cdk:warning" {
			return []string{fmt.Sprintf("%s: %v", path, v["data"])}
		}
		for key, below := range v {
			if strings.HasPrefix(key, "/") {
				path = key
			}
			found = append(found, annotations(path, below)...)
		}
	case []any:
		for _, below := range v {
			found = append(found, annotations(path, below)...)
		}
	}
	return found
}

// Golden compares the template with the reviewed template in the file golden.
// UPDATE_GOLDEN=1 overwrites the file, for the next review.
func Golden(t *testing.T, template Template, golden string) {
	t.Helper()
	got, err := json.MarshalIndent(template.Raw, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the template differs from %s at line %d; review it with UPDATE_GOLDEN=1 and git diff", golden, firstDifference(got, want))
	}
}

func firstDifference(a, b []byte) int {
	n := 1
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return n
		}
		if a[i] == '\n' {
			n++
		}
	}
	return n
}
