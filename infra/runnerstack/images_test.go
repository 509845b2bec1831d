package runnerstack_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// image returns an image by digest.
func image(name string, digit string) string {
	return name + "@sha256:" + strings.Repeat(digit, 64)
}

// Each listed image has one task definition, which the agent's file names. An image that is listed twice has one, and a shorter list
// has fewer.
func TestEachScriptImageHasATaskDefinition(t *testing.T) {
	a, b, c, d := image("registry.example.com/acme/tools", "a"), image("registry.example.com:5000/b", "b"), image("999988887777.dkr.ecr.eu-central-1.amazonaws.com/x/y", "c"), image("docker.io/library/python", "d")
	for value, want := range map[string][]string{
		"":                                      nil,
		a:                                       {a},
		strings.Join([]string{a, b}, ","):       {a, b},
		strings.Join([]string{a, a}, ","):       {a},
		strings.Join([]string{a, b, a, c}, ","): {a, b, c},
		strings.Join([]string{a, b, c, d}, ","): {a, b, c, d},
	} {
		s := stack(t, wire.StackScriptImages, value)
		text := strings.NewReplacer("publicsubnet", "subnet-0123456", "GroupId-of-runnersecuritygroup", "sg-01234567").Replace(infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_AGENT_CONFIG"])
		file, problems := runnerspec.ParseAgent("file", []byte(text))
		if len(problems) > 0 {
			t.Fatalf("%q: the agent's file is %s: %v", value, text, problems)
		}
		given := file.Runner.(*runnerspec.ECSRunner).Job.ImageDefinitions
		if got := slices.Sorted(maps.Keys(given)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%q: the agent's file has the images %q, want %q", value, got, want)
		}
		defined := 0
		for id, r := range s.Resources {
			if !strings.HasPrefix(id, "ScriptTask") {
				continue
			}
			defined++
			step := r.Properties["ContainerDefinitions"].([]any)[0].(map[string]any)
			if got := given[fmt.Sprint(step["Image"])]; got != strings.ToLower(id) { // the test's name of the resource
				t.Errorf("%q: the definition of %v is %s, and the agent starts %q", value, step["Image"], id, got)
			}
		}
		if defined != len(want) {
			t.Errorf("%q makes %d task definitions, want %d", value, defined, len(want))
		}
		if p := stack(t, wire.StackScriptImages, value, "Isolation", "Process"); p.Resources["ScriptTask1"].Type != "" {
			t.Errorf("%q: processes have task definitions of images", value)
		}
	}
}

// The task of a script's image is that of every other job, except for the image and for the program, which a first container
// copies out of the runner's image.
func TestScriptTaskDiffersInItsImageOnly(t *testing.T) {
	own := image("registry.example.com/acme/tools", "a")
	s := stack(t, wire.StackScriptImages, own, "RunnerSize", "Large")
	infratest.TasksAreConfined(t, s)
	plain, script := s.Resources["StepTask"].Properties, s.Resources["ScriptTask1"].Properties
	for name, want := range plain {
		if slices.Contains([]string{"ContainerDefinitions", "Family", "Volumes", "Tags"}, name) {
			continue
		}
		if !reflect.DeepEqual(script[name], want) {
			t.Errorf("%s is %v, want %v", name, script[name], want)
		}
	}
	containers := script["ContainerDefinitions"].([]any)
	if len(containers) != 2 {
		t.Fatalf("the task has %d containers, want 2", len(containers))
	}
	of := plain["ContainerDefinitions"].([]any)[0].(map[string]any)
	step, copying := containers[0].(map[string]any), containers[1].(map[string]any)
	for name, want := range of {
		if slices.Contains([]string{"Image", "MountPoints"}, name) {
			continue
		}
		if !reflect.DeepEqual(step[name], want) {
			t.Errorf("%s of the step is %v, want %v", name, step[name], want)
		}
		if got := copying[name]; !slices.Contains([]string{"Name", "Essential", "LogConfiguration", "User"}, name) && !reflect.DeepEqual(got, want) {
			t.Errorf("%s of the copying container is %v, want %v", name, got, want)
		}
	}
	if step["Image"] != own || fmt.Sprint(step["EntryPoint"]) != "[/.fairlead/runner]" || step["Command"] != nil || fmt.Sprint(step["DependsOn"]) != "[map[Condition:SUCCESS ContainerName:copy]]" {
		t.Errorf("the step is %v", step)
	}
	if copying["Image"] != given()[wire.StackRunnerImage] || copying["Essential"] != false || fmt.Sprint(copying["Command"]) != "[copy /.fairlead]" {
		t.Errorf("the copying container is %v", copying)
	}
	mounts := func(c map[string]any) map[string]any {
		all := map[string]any{}
		for _, m := range c["MountPoints"].([]any) {
			m := m.(map[string]any)
			all[fmt.Sprint(m["ContainerPath"], " of ", m["SourceVolume"])] = m["ReadOnly"]
		}
		return all
	}
	want := map[string]any{"/var/lib/fairlead-runner of data": false, "/tmp of temp": false, "/.fairlead of program": false}
	if got := mounts(copying); !maps.Equal(got, want) {
		t.Errorf("the copying container has the volumes %v, want %v: only its image gives them an owner", got, want)
	}
	want["/.fairlead of program"] = true
	if got := mounts(step); !maps.Equal(got, want) {
		t.Errorf("the step has the volumes %v, want %v", got, want)
	}
}

// The agent starts only the families of the stack. So a role that may register a task definition of another family chooses nothing that
// the agent starts.
func TestAgentStartsOnlyListedImages(t *testing.T) {
	s := stack(t, wire.StackScriptImages, image("registry.example.com/acme/tools", "a"))
	family := "arn:aws:ecs:eu-central-1:111122223333:task-definition/fairlead-" + install
	context := map[string]any{"ecs:cluster": s.ARN("Cluster")}
	var questions []infratest.Question
	ask := func(action, resource string) {
		questions = append(questions, infratest.Question{Principal: s.ARN("RunnerRole"), Action: action, Resource: resource, Account: infratest.Account, Context: context, Identity: s.Policies("RunnerRole")})
	}
	want := []bool{true, true, true, false, false, false, false}
	ask("ecs:RunTask", family+"-step:1")
	ask("ecs:RunTask", family+"-script-1:3")
	ask("ecs:RunTask", family+"-script-4:1")
	ask("ecs:RunTask", family+"-script-5:1")
	ask("ecs:RunTask", family+"-script-12:1")
	ask("ecs:RegisterTaskDefinition", "*")
	ask("ecs:DeregisterTaskDefinition", "*")
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("the agent may use %s on %s: %t, want %t", questions[i].Action, questions[i].Resource, allowed, want[i])
		}
	}
}

// CloudFormation accepts only images that app.yaml can name, and that cannot change.
func TestScriptImagesAreNamedByDigest(t *testing.T) {
	tools := image("registry.example.com/acme/tools", "a")
	values := map[string]bool{
		"":    true,
		tools: true,
		image("registry.example.com:5000/tools", "b"):                                      true,
		image("999988887777.dkr.ecr.eu-central-1.amazonaws.com/fairlead/ins_1/tools", "c"): true,
		tools + "," + image("docker.io/library/python", "d"):                               true,
		strings.Repeat(tools+",", wire.MaxScriptImages-1) + tools:                          true,
		strings.Repeat(tools+",", wire.MaxScriptImages) + tools:                            false,
		tools + ",":                           false,
		"registry.example.com/acme/tools":     false,
		"registry.example.com/acme/tools:1":   false,
		strings.Replace(tools, "@", ":1@", 1): false,
		tools[:len(tools)-1]:                  false,
		image("tools", "a"):                   false,
		image("acme/tools", "a"):              false,
		tools + `"}`:                          false,
		"https://" + tools:                    false,
	}
	list := slices.Sorted(maps.Keys(values))
	for i, accepted := range infratest.Accepts(t, synth(t).template, wire.StackScriptImages, list) {
		if accepted != values[list[i]] {
			t.Errorf("ScriptImages=%s: accepted %t", list[i], accepted)
		}
		for entry := range strings.SplitSeq(list[i], ",") {
			if accepted && list[i] != "" && !appspec.IsImage(entry) {
				t.Errorf("the template accepts %s, which no app can name", entry)
			}
		}
	}
}
