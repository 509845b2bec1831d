package infratest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TaskEnvironment returns the environment of the first container of a task.
func TaskEnvironment(t *testing.T, s Stack, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, _ := containers(t, s, id)[0]["Environment"].([]any) // none: a step's
	for _, v := range list {
		m := v.(map[string]any)
		out[fmt.Sprint(m["Name"])] = fmt.Sprint(m["Value"])
	}
	return out
}

func containers(t *testing.T, s Stack, id string) (all []map[string]any) {
	t.Helper()
	list, _ := s.Resources[id].Properties["ContainerDefinitions"].([]any)
	for _, c := range list {
		all = append(all, c.(map[string]any))
	}
	if len(all) == 0 {
		t.Fatalf("the task %s has no container", id)
	}
	return all
}

// TasksAreConfined checks that each task has an image by digest, no root user, a
// read-only file system except for its volumes, and no secret. It checks that no shell
// can be opened in it, that it has no incoming connections, and that only tasks of the
// account can use its roles.
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
				t.Errorf("%s permits incoming connections: %v", id, r.Properties["SecurityGroupIngress"])
			}
		case "AWS::EC2::SecurityGroupIngress":
			t.Errorf("%s permits incoming connections", id)
		}
	}
	if n == 0 {
		t.Error("the stack has no task")
	}
}

func taskIsConfined(t *testing.T, s Stack, id string) {
	t.Helper()
	task := s.Resources[id].Properties
	for _, c := range containers(t, s, id) {
		user := "65532:65532"
		if c["Name"] == "copy" { // it runs no tool, and may read the runner's program
			user = "65532:65533"
		}
		for name, want := range map[string]any{"ReadonlyRootFilesystem": true, "Privileged": false, "User": user, "Secrets": nil} {
			if c[name] != want {
				t.Errorf("the container %v of %s has %s %v, want %v", c["Name"], id, name, c[name], want)
			}
		}
		if linux, _ := c["LinuxParameters"].(map[string]any); linux["InitProcessEnabled"] == true {
			t.Errorf("the container %v of %s has an init process, whose environment a tool can read", c["Name"], id)
		}
		// In a customer's stack the image is a parameter, and so the test's own value here: Accepts tests its pattern.
		if !strings.Contains(fmt.Sprint(c["Image"]), "@sha256:") {
			t.Errorf("the image of the container %v of %s is %v", c["Name"], id, c["Image"])
		}
	}
	if fmt.Sprint(task["RuntimePlatform"]) != "map[CpuArchitecture:ARM64 OperatingSystemFamily:LINUX]" {
		t.Errorf("%s runs on %v", id, task["RuntimePlatform"])
	}
	for name := range TaskEnvironment(t, s, id) {
		if strings.Contains(name, "TOKEN") {
			t.Errorf("%s has the variable %s, but its identity must be its role", id, name)
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
			t.Errorf("%s has the trust policy %s, want %s", role, got, want)
		}
	}
	want := 2 // the task role and the execution role
	if task["TaskRoleArn"] == nil {
		want = 1 // the agent gives the task its role
	}
	if found != want {
		t.Errorf("the stack has %d roles of %s, want %d", found, id, want)
	}
}

// ec2Text matches the descriptions that EC2 accepts for a security group and its
// rules. CloudFormation's schema does not check the descriptions, so cfn-lint does
// not check them either.
var ec2Text = regexp.MustCompile(`^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}$`)

// SecurityGroupsAreTaken checks that EC2 accepts the descriptions of each security
// group and of its rules. One wrong character rolls the stack back.
func SecurityGroupsAreTaken(t *testing.T, s Stack) {
	t.Helper()
	n := 0
	check := func(id string, text any) {
		n++
		if text := fmt.Sprint(text); !ec2Text.MatchString(text) {
			t.Errorf("EC2 refuses the description of %s: %q", id, text)
		}
	}
	for id, r := range s.Resources {
		switch r.Type {
		case "AWS::EC2::SecurityGroup":
			check(id, r.Properties["GroupDescription"])
			for _, rules := range []string{"SecurityGroupIngress", "SecurityGroupEgress"} {
				list, _ := r.Properties[rules].([]any)
				for _, rule := range list {
					if text, ok := rule.(map[string]any)["Description"]; ok {
						check(id, text)
					}
				}
			}
		case "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress":
			if text, ok := r.Properties["Description"]; ok {
				check(id, text)
			}
		}
	}
	if n == 0 {
		t.Error("the stack has no security group")
	}
}
