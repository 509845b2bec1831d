// Package codebuildtest simulates the part of AWS CodeBuild that moto lacks: the machines that run a project's buildspec.
package codebuildtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
)

// Project is a project of CodeBuild as CloudFormation declares it. A property that is not here is an error, so that no test
// passes because the simulation ignores a setting.
type Project struct {
	Name                   string
	Description            string
	ServiceRole            string // ARN
	ConcurrentBuildLimit   int    // 0: the account's quota
	TimeoutInMinutes       int
	QueuedTimeoutInMinutes int
	EncryptionKey          string
	Visibility             string
	Tags                   []any
	Artifacts              struct{ Type string }
	Source                 struct{ Type, BuildSpec string }
	Environment            struct {
		Type, ComputeType, Image string
		ImagePullCredentialsType string
		PrivilegedMode           bool
		EnvironmentVariables     []Variable
	}
	LogsConfig struct {
		CloudWatchLogs struct{ Status, GroupName string }
	}
}

// Variable is an environment variable of a project or of a build.
type Variable struct{ Name, Value, Type string }

// ReadProject reads the properties of a resource of the type AWS::CodeBuild::Project, whose references are resolved.
func ReadProject(properties map[string]any) (Project, error) {
	text, err := json.Marshal(properties)
	if err != nil {
		return Project{}, err
	}
	var p Project
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Project{}, fmt.Errorf("a project of CodeBuild: %w", err)
	}
	if p.Source.Type != "NO_SOURCE" || p.Artifacts.Type != "NO_ARTIFACTS" || p.LogsConfig.CloudWatchLogs.Status != "ENABLED" {
		return Project{}, errors.New("this simulation runs only projects without a source and artifacts, with a log in CloudWatch")
	}
	if _, err := readBuildspec(p.Source.BuildSpec); err != nil {
		return Project{}, err
	}
	return p, nil
}

// buildspec is a buildspec of version 0.2.
type buildspec struct {
	Version string `yaml:"version"`
	Env     struct {
		Shell string `yaml:"shell"`
	} `yaml:"env"`
	Phases map[string]phase `yaml:"phases"`
}

type phase struct {
	OnFailure string   `yaml:"on-failure"`
	Commands  []string `yaml:"commands"`
}

func readBuildspec(text string) (buildspec, error) {
	var s buildspec
	if err := yaml.UnmarshalWithOptions([]byte(text), &s, yaml.Strict()); err != nil {
		return s, fmt.Errorf("buildspec: %w", err)
	}
	if s.Version != "0.2" || s.Env.Shell != "bash" {
		return s, fmt.Errorf("buildspec: version %s with the shell %q; this simulation has 0.2 with bash", s.Version, s.Env.Shell)
	}
	for name := range s.Phases {
		if name != "pre_build" && name != "build" && name != "post_build" {
			return s, fmt.Errorf("buildspec: this simulation has no phase %s", name)
		}
	}
	return s, nil
}
