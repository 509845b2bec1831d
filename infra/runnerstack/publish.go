package runnerstack

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/pkg/stackversion"
)

// comments explains the resources of the template to the customer who reviews it, by
// logical id. TestEachResourceIsExplained requires one for each resource.
var comments = map[string]string{
	"Vpc":                       "A network for the runner alone, unless NetworkMode is ExistingVpc. Nothing connects to the runner from outside.",
	"InternetGateway":           "The runner's way out.",
	"InternetGatewayAttachment": "",
	"PublicRoutes":              "",
	"PublicRoute":               "",
	"PublicSubnet1":             "",
	"PublicSubnet1Routes":       "",
	"PublicSubnet2":             "",
	"PublicSubnet2Routes":       "",
	"S3Endpoint":                "Requests to S3 do not leave AWS's network, and a NAT gateway does not bill them.",
	"RunnerSecurityGroup":       "Only outgoing HTTPS; no incoming connection.",
	"PrivateRoutes":             "With NetworkMode NewVpcNat, the runner has no public address.",
	"NatAddress":                "",
	"NatGateway":                "",
	"PrivateRoute":              "",
	"PrivateSubnet1":            "",
	"PrivateSubnet1Routes":      "",
	"PrivateSubnet2":            "",
	"PrivateSubnet2Routes":      "",
	"StateKey":                  "Encrypts Terraform states and saved plans. The account keeps access to it; roles of other installs are denied. It stays when the stack is deleted.",
	"StateBucket":               "Terraform states and saved plans: the only record of what was made in the account. It stays when the stack is deleted.",
	"StateBucketPolicy":         "Refuses requests without TLS, and roles of other installs in the account.",
	"Images":                    "Copies of the app's images, so that the app does not depend on the vendor's registry.",
	"Artifacts":                 "Copies of the app's other artifacts.",
	"FlowLogGroup":              "The connections of the new VPC, if FlowLogs is Enabled.",
	"FlowLogRole":               "",
	"FlowLog":                   "",
	"EcsServiceRole":            "AWS defines this role. It is made only for an account that has never used ECS, and stays for other clusters.",
	"RunnerMode":                "Your mode of the runner: enabled or paused. The agent reads it every few seconds; change it in Systems Manager at any time.",
	"RunnerLog":                 "The runner's own log. Logs of jobs go to the vendor.",
	"Cluster":                   "Holds the runner's task.",
	"Boundary":                  "The ceiling of each role below, and of each role that the app makes. It grants nothing by itself. It stays when the stack is deleted, because IAM does not delete the boundary of an existing role.",
	"ExecutionRole":             "ECS starts the runner's container with this role: it pulls the image and writes the runner's log.",
	"RunnerRole":                "The identity of the runner. With Isolation Task it starts tasks for jobs; with Process it takes the roles below. It can do nothing else.",
	"RunnerRolePolicy":          "",
	"ProvisionRole":             "Applies of Terraform modules.",
	"DeployRole":                "Other applies. It cannot remove what holds data.",
	"DeprovisionRole":           "Teardowns. It cannot make or pass roles.",
	"ReadOnlyRole":              "Plans. It reads no data, unless PlansReadData is Yes.",
	"ProvisionStepRole":         "With Isolation Task: the identity of the tasks of one operation. It takes the role of this operation and no other.",
	"ProvisionStepRolePolicy":   "",
	"DeployStepRole":            "The same for other applies.",
	"DeployStepRolePolicy":      "",
	"DeprovisionStepRole":       "The same for teardowns.",
	"DeprovisionStepRolePolicy": "",
	"ReadOnlyStepRole":          "The same for plans.",
	"ReadOnlyStepRolePolicy":    "",
	"StepSecrets":               "With JobSecrets: tasks of jobs read these secrets.",
	"InstallKeySeed":            "The seed of the install keys, with which jobs encrypt secrets, so that the vendor cannot read them. AWS makes it in your account. It stays when the stack is deleted.",
	"InstallKeyAccess":          "The runner and the tasks of jobs read the seed. The roles of tools do not.",
	"StepPolicy":                "With Policy: tasks of jobs read your policy, and keep in the state bucket what it decides about several jobs.",
	"StepTask":                  "One job, in a task of its own, from the same image. It has no variables; the agent gives it a token that is used once.",
	"ScriptTask1":               "With ScriptImages: one job of a script in its image. It has the limits and roles of StepTask. A first container copies the runner's program, which starts the script.",
	"ScriptTask2":               "The same for the second image.",
	"ScriptTask3":               "The same for the third image.",
	"ScriptTask4":               "The same for the fourth image.",
	"RunnerTask":                "The runner: one container, its image by digest, not root, with a read-only root file system. No variable is a secret.",
	"RunnerService":             "Keeps one task running, or none while RunnerState is Disabled.",
}

// statements explains the statements of the policies, by Sid.
var statements = map[string]string{
	"Services":               "Allows nothing by itself: a role may use only what its own policy also allows.",
	"BoundaryStays":          "No role loses its boundary.",
	"StateIsTheRunners":      "Roles of the app do not reach the states.",
	"RunnerStays":            "What guards the runner cannot be changed: the states and their key, the stack, its roles, tasks and log, and your mode. Tasks cannot be read either. AWS lets any role deregister a task definition.",
	"ClusterStays":           "Nothing else runs in the runner's cluster, and its tasks are not listed.",
	"OthersStay":             "What this install did not make, by its tag, cannot be changed, used or tagged; its configuration can be read.",
	"CopiesStay":             "The same for copies of data.",
	"ParametersStay":         "Only parameters with the install's tag are written.",
	"Never":                  "No role runs commands on machines by a target, takes over sessions, shares machine images, exports certificates, copies traffic, or changes settings of the account's registry, logs, disks and public access.",
	"GiveUnderTheBoundary":   "Roles of the app are made, and get permissions, only under the boundary.",
	"TrimUnderABoundary":     "Permissions are taken from roles of the app.",
	"ShapeAppRoles":          "Only roles and policies below the app's own path.",
	"DropAppRoles":           "Only roles and policies below the app's own path.",
	"ServiceLinkedRoles":     "Roles that AWS defines, which a service makes for itself.",
	"App":                    "What the app may use: the parameter AppActions.",
	"DataStays":              "A deployment does not remove what holds data.",
	"DataIsNotRead":          "With PlansReadData No, plans read configuration and no data.",
	"ObjectsAreNotRead":      "With PlansReadData No, plans read no objects except states and saved plans.",
	"NothingElseIsDecrypted": "With PlansReadData No, plans decrypt nothing except states and saved plans.",
	"ReadSecrets":            "The secrets of JobSecrets. The step reads them and gives them to its tool; no program of the app has this role.",
	"OpenSecrets":            "Keys of yours that encrypt these secrets, through Secrets Manager and SSM only.",
	"NothingWhileDisabled":   "While RunnerState is Disabled, an earlier session may only save its state.",
	"OtherInstallsStayOut":   "Roles of other installs in this account have no access.",
	"OnlyTLS":                "Requests without TLS are refused.",
	"TheAccountDecides":      "Administrators of this account keep access to the key.",
	"RunnerForAJob":          "Only the runner takes this role: with the external id, for one job, which names the session.",
	"StepOfAJob":             "For one job, which names the session, and with the install's external id.",
	"PassStepRoles":          "The agent gives a task the role of its operation's step, and no other role.",
	"TaggedByTheJob":         "Each session has the install and the job as tags, which CloudTrail shows.",
}

// header returns the comment at the beginning of the published template.
func header() string {
	return "The runner of your vendor's product, version " + stackversion.Current() + ` of its template. It asks the vendor's
control plane for jobs and runs them in this account, with the roles below. The vendor gets
no user, role or key in this account. This template contains no secret, runs no code while
it is created, and downloads one image, which it names by digest.

`
}

// sections explains the sections of the template.
var sections = map[string]string{
	"Parameters": "What the vendor and you decide. The first group comes with your vendor's link.",
	"Rules":      "Refuse contradicting parameters before anything is created.",
	"Outputs":    "What the stack made, and what stays when you delete it.",
}

// Publish returns the template as customers get it: YAML with comments, in the order in
// which the stack was built, without cdk-nag metadata. CloudFormation reads it from a
// bucket, where a template may have 1 MB.
func Publish(synthesized []byte) ([]byte, error) {
	var template yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(synthesized, &template, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("the runner stack's template: %w", err)
	}
	resources, _ := entry(template, "Resources").(yaml.MapSlice)
	if resources == nil {
		return nil, errors.New("the runner stack's template has no resources")
	}
	for i, r := range resources {
		resource, _ := r.Value.(yaml.MapSlice)
		metadata, _ := entry(resource, "Metadata").(yaml.MapSlice)
		without := slices.DeleteFunc(slices.Clone(metadata), func(m yaml.MapItem) bool { return m.Key == "cdk_nag" })
		resources[i].Value = slices.DeleteFunc(resource, func(m yaml.MapItem) bool { return m.Key == "Metadata" })
		if len(without) > 0 {
			resources[i].Value = append(resources[i].Value.(yaml.MapSlice), yaml.MapItem{Key: "Metadata", Value: without})
		}
	}
	out := yaml.MapSlice{{Key: "AWSTemplateFormatVersion", Value: "2010-09-09"}}
	for _, section := range []string{"Description", "Metadata", "Parameters", "Rules", "Mappings", "Conditions", "Resources", "Outputs"} {
		if v := entry(template, section); v != nil {
			out = append(out, yaml.MapItem{Key: section, Value: readable(v)})
		}
	}
	notes := yaml.CommentMap{}
	note := func(path, text string) {
		if text != "" {
			notes[path] = []*yaml.Comment{yaml.HeadComment(lines(text)...)}
		}
	}
	for section, text := range sections {
		note("$."+section, text)
	}
	for _, r := range resources {
		id, _ := r.Key.(string)
		note("$.Resources."+id, comments[id])
		eachStatement("$.Resources."+id, r.Value, func(path, sid string) { note(path, statements[sid]) })
	}
	text, err := yaml.MarshalWithOptions(out, yaml.IndentSequence(true), yaml.WithComment(notes))
	if err != nil {
		return nil, fmt.Errorf("the runner stack's template: %w", err)
	}
	var b strings.Builder
	for line := range strings.Lines(header()) {
		b.WriteString(strings.TrimRight("# "+strings.TrimSuffix(line, "\n"), " ") + "\n")
	}
	return append([]byte(b.String()), text...), nil
}

// eachStatement calls found for each statement of a policy in v, with its path.
func eachStatement(path string, v any, found func(path, sid string)) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			eachStatement(fmt.Sprintf("%s[%d]", path, i), item, found)
		}
	case yaml.MapSlice:
		if sid, ok := entry(v, "Sid").(string); ok {
			found(path, sid)
			return
		}
		for _, item := range v {
			eachStatement(fmt.Sprintf("%s.%v", path, item.Key), item.Value, found)
		}
	}
}

// entry returns the value of a key; nil if there is none.
func entry(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// readable replaces each Fn::Join of texts and references by an Fn::Sub, which shows
// them as one text.
func readable(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = readable(item)
		}
		return out
	case yaml.MapSlice:
		if text, ok := substitution(v); ok {
			return yaml.MapSlice{{Key: "Fn::Sub", Value: text}}
		}
		out := make(yaml.MapSlice, len(v))
		for i, item := range v {
			out[i] = yaml.MapItem{Key: item.Key, Value: readable(item.Value)}
		}
		return out
	}
	return v
}

func substitution(m yaml.MapSlice) (string, bool) {
	if len(m) != 1 || m[0].Key != "Fn::Join" {
		return "", false
	}
	join, _ := m[0].Value.([]any)
	if len(join) != 2 || join[0] != "" {
		return "", false
	}
	parts, _ := join[1].([]any)
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			b.WriteString(strings.ReplaceAll(part, "${", "${!"))
		case yaml.MapSlice:
			if len(part) != 1 {
				return "", false
			}
			switch name := part[0].Value.(type) {
			case string:
				if part[0].Key != "Ref" {
					return "", false
				}
				b.WriteString("${" + name + "}")
			case []any:
				if part[0].Key != "Fn::GetAtt" || len(name) != 2 {
					return "", false
				}
				b.WriteString(fmt.Sprintf("${%v.%v}", name[0], name[1]))
			default:
				return "", false
			}
		default:
			return "", false
		}
	}
	return b.String(), len(parts) > 0
}

// lines breaks a comment into lines of at most 88 characters, each with a space before.
func lines(text string) (out []string) {
	line := ""
	for field := range strings.FieldsSeq(text) {
		if line != "" && len(line)+len(field) > 88 {
			out, line = append(out, line), ""
		}
		line += " " + field
	}
	return append(out, line)
}
