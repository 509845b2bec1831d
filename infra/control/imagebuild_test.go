package control_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/infra/control"
)

// The project is what its simulation runs: privileged, because Docker needs it, with the commands of the file, and with no
// source that its role would have to read.
func TestImageProjectRunsTheFile(t *testing.T) {
	p := stack(t).Resources["BuildRunnerImages"].Properties
	text, err := os.ReadFile("image-build.yaml")
	if err != nil {
		t.Fatal(err)
	}
	source, environment := p["Source"].(map[string]any), p["Environment"].(map[string]any)
	if source["Type"] != "NO_SOURCE" || source["BuildSpec"] != string(text) || environment["PrivilegedMode"] != true {
		t.Errorf("the project has the source %v and the environment %v", source, environment)
	}
	if got := fmt.Sprint(environment["Type"], environment["Image"], environment["ComputeType"]); got != "LINUX_CONTAINERaws/codebuild/amazonlinux-x86_64-standard:5.0BUILD_GENERAL1_SMALL" {
		t.Errorf("by default, the machine is %s", got)
	}
	if _, limited := p["ConcurrentBuildLimit"]; limited {
		t.Error("by default, the project limits the number of builds; the account's quota does")
	}
	_, s := with(t, func(p *control.Props) {
		p.Build.Images = control.Images{Architecture: "arm64", Size: "Large", Limit: 3, BuildKit: "registry.example.com/buildkit@sha256:" + strings.Repeat("a", 64)}
	})
	p = s.Resources["BuildRunnerImages"].Properties
	environment = p["Environment"].(map[string]any)
	if got := fmt.Sprint(environment["Type"], environment["Image"], environment["ComputeType"], p["ConcurrentBuildLimit"]); got != "ARM_CONTAINERaws/codebuild/amazonlinux-aarch64-standard:3.0BUILD_GENERAL1_LARGE3" {
		t.Errorf("the machine is %s", got)
	}
	if got := fmt.Sprint(environment["EnvironmentVariables"]); !strings.Contains(got, "registry.example.com/buildkit@sha256:") {
		t.Errorf("the variables are %s", got)
	}
}

// A build that waits and runs as long as it may ends before the URL expires with which it stores its image.
func TestImageBuildEndsBeforeItsAccess(t *testing.T) {
	p := stack(t).Resources["BuildRunnerImages"].Properties
	text, err := os.ReadFile("../../pkg/identity/awssession/awssession.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "const imageLifetime = time.Hour\n") {
		t.Fatal("the lifetime of the access is not an hour any more: change this test")
	}
	longest := time.Duration(p["TimeoutInMinutes"].(float64)+p["QueuedTimeoutInMinutes"].(float64)) * time.Minute
	if rest := time.Hour - longest; rest < 5*time.Minute {
		t.Errorf("a build may take %s, and leaves %s of an hour for the upload of the context", longest, rest)
	}
}

// The tests of image builders run the version of BuildKit that a build in CodeBuild starts.
func TestTestedBuildKitIsTheProjects(t *testing.T) {
	text, err := os.ReadFile("../../tools/buildkit/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github.com/moby/buildkit (v\S+)`).FindSubmatch(text)
	variables := fmt.Sprint(stack(t).Resources["BuildRunnerImages"].Properties["Environment"].(map[string]any)["EnvironmentVariables"])
	if m == nil || !strings.Contains(variables, "moby/buildkit:"+string(m[1])) {
		t.Errorf("the project has %s, the tests run %s", variables, m)
	}
}

// CodeBuild alone assumes the role of builds, and only for the project.
func TestOnlyTheProjectHasItsRole(t *testing.T) {
	got := fmt.Sprint(stack(t).Resources["BuildRunnerImagesRole"].Properties["AssumeRolePolicyDocument"])
	if !strings.Contains(got, "Service:codebuild.amazonaws.com") || !strings.Contains(got, "ArnEquals:map[aws:SourceArn:"+project+"]") || !strings.Contains(got, "aws:SourceAccount:111122223333") {
		t.Errorf("the trust policy is %s", got)
	}
}

func TestImageBuildSettingsAreChecked(t *testing.T) {
	for key, value := range map[string]string{"imageBuildArchitecture": "riscv", "imageBuildSize": "Huge", "imageBuildKit": "moby/buildkit", "imageBuilds": "0"} {
		p, err := control.FromContext(func(k string) string {
			if k == key {
				return value
			}
			return map[string]string{"stage": "test", "functions": "testdata/functions"}[k]
		})
		if err == nil {
			_, err = control.New(nil, p)
		}
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: got error %v", key, value, err)
		}
	}
}
