package infratest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TaskEnvironment returns the environment of a task's one container.
func TaskEnvironment(t *testing.T, s Stack, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range container(t, s, id)["Environment"].([]any) {
		m := v.(map[string]any)
		out[fmt.Sprint(m["Name"])] = fmt.Sprint(m["Value"])
	}
	return out
}

func container(t *testing.T, s Stack, id string) map[string]any {
	t.Helper()
	list, _ := s.Resources[id].Properties["ContainerDefinitions"].([]any)
	if len(list) != 1 {
		t.Fatalf("the task %s has %d containers, want 1", id, len(list))
	}
	return list[0].(map[string]any)
}

// TasksAreConfined checks that each task has an image by digest, no root, no file
// system to write but its volumes, and no secret; that no shell can be opened in
// it and nothing comes in; and that only tasks of the account have its roles.
func TasksAreConfined(t *testing.T, s Stack) {
	t.Helper()
	n := 0
	for id, r := range s.Resources {
		switch r.Type {
		case "AWS::ECS::TaskDefinition":
			n++
			taskIsConfined(t, s, id)
		case "AWS::ECS::Service":
			if r.Properties["EnableExecuteCommand"] != false {
				t.Errorf("a shell can be opened in the tasks of %s", id)
			}
		case "AWS::EC2::SecurityGroup":
			if r.Properties["SecurityGroupIngress"] != nil {
				t.Errorf("%s lets in %v", id, r.Properties["SecurityGroupIngress"])
			}
		case "AWS::EC2::SecurityGroupIngress":
			t.Errorf("%s lets something in", id)
		}
	}
	if n == 0 {
		t.Error("the stack has no task")
	}
}

func taskIsConfined(t *testing.T, s Stack, id string) {
	t.Helper()
	task, c := s.Resources[id].Properties, container(t, s, id)
	for name, want := range map[string]any{"ReadonlyRootFilesystem": true, "Privileged": false, "User": "65532:65532", "Secrets": nil} {
		if c[name] != want {
			t.Errorf("the container of %s has %s %v, want %v", id, name, c[name], want)
		}
	}
	if !strings.Contains(fmt.Sprint(c["Image"]), "@sha256:") {
		t.Errorf("the image of %s is %v", id, c["Image"])
	}
	if fmt.Sprint(task["RuntimePlatform"]) != "map[CpuArchitecture:ARM64 OperatingSystemFamily:LINUX]" {
		t.Errorf("%s runs on %v", id, task["RuntimePlatform"])
	}
	for name := range TaskEnvironment(t, s, id) {
		if strings.Contains(name, "TOKEN") {
			t.Errorf("%s is given %s; its identity is its role", id, name)
		}
	}
	found := 0
	for role, r := range s.Resources {
		if arn := s.ARN(role); r.Type != "AWS::IAM::Role" || arn != task["TaskRoleArn"] && arn != task["ExecutionRoleArn"] {
			continue
		}
		found++
		want := `[map[Action:[sts:AssumeRole] Condition:map[ArnLike:map[aws:SourceArn:arn:aws:ecs:` + Region + ":" + Account + `:*] StringEquals:map[aws:SourceAccount:` + Account +
			`]] Effect:Allow Principal:map[Service:ecs-tasks.amazonaws.com]]]`
		if got := fmt.Sprint(Statements(r.Properties["AssumeRolePolicyDocument"])); got != want {
			t.Errorf("%s can be taken by %s, want %s", role, got, want)
		}
	}
	if found != 2 {
		t.Errorf("%d roles of %s are of this stack, want that of the task and that which starts it", found, id)
	}
}

// ec2Text is what EC2 takes as the description of a security group or of one of
// its rules. CloudFormation's schema does not know it, so neither does cfn-lint.
var ec2Text = regexp.MustCompile(`^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}$`)

// SecurityGroupsAreTaken checks that EC2 takes what is said of each security group
// and of its rules. One character that it does not take rolls the stack back.
func SecurityGroupsAreTaken(t *testing.T, s Stack) {
	t.Helper()
	n := 0
	said := func(id string, text any) {
		n++
		if text := fmt.Sprint(text); !ec2Text.MatchString(text) {
			t.Errorf("EC2 refuses what is said of %s: %q", id, text)
		}
	}
	for id, r := range s.Resources {
		switch r.Type {
		case "AWS::EC2::SecurityGroup":
			said(id, r.Properties["GroupDescription"])
			for _, rules := range []string{"SecurityGroupIngress", "SecurityGroupEgress"} {
				list, _ := r.Properties[rules].([]any)
				for _, rule := range list {
					if text, ok := rule.(map[string]any)["Description"]; ok {
						said(id, text)
					}
				}
			}
		case "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress":
			if text, ok := r.Properties["Description"]; ok {
				said(id, text)
			}
		}
	}
	if n == 0 {
		t.Error("the stack has no security group")
	}
}
