package runnerstack_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/tools/iamsimulator"
)

// openFile has what the boundary leaves open on the resources of others, by the row of gaps or of
// arguedOpen that explains it. A newer list of AWS's actions changes it, and a person reviews that.
const openFile = "testdata/open-actions.txt"

// open is an action on a resource of others. It has the type of the resource, as AWS's Service
// Authorization Reference names it, or none for an action that names no resource.
type open struct {
	action, typ, resource string
	tags                  bool // AWS compares the tags of the request
	unclear               bool // the resource may be of two types of the action, so the simulator does not answer
}

const none = "none"

func (o open) String() string { return o.action + " " + o.typ }

// arguedOpen has what is no attack, by patterns of action and type: "*" is any text. The first
// row of arguedOpen that has an action explains it, else the first row of gaps.
var arguedOpen = []struct {
	why      string
	patterns []string
}{
	{"it makes a new resource, and AWS refuses the name of an existing one or changes nothing", []string{
		"dynamodb:CreateTable table", "ec2:CreateLaunchTemplate launch-template", "ec2:CreateVolume volume", "ec2:CreateSnapshot* snapshot", "ec2:RunInstances instance", "ec2:RunInstances volume",
		"ecr:CreateRepository repository", "ecs:CreateCluster cluster", "ecs:CreateService service", "ecs:RegisterTaskDefinition task-definition", "eks:CreateCluster none", "eks:RegisterCluster none",
		"kms:CreateKey none", "lambda:CreateFunction function", "logs:CreateLogGroup log-group", "rds:CreateDBCluster cluster", "rds:CreateDBInstance db",
		"rds:CreateDBSnapshot snapshot", "rds:CreateDBClusterSnapshot cluster-snapshot", "rds:RestoreDB* cluster", "rds:RestoreDB* db", "secretsmanager:CreateSecret secret", "sns:CreateTopic topic",
		"sqs:CreateQueue queue", "ssm:CreateDocument document", "ssm:PutParameter parameter", "states:CreateStateMachine statemachine"}},
	{"it makes something new, and names nothing that exists", []string{"acm:RequestCertificate none", "acm:CreateAcmeEndpoint none", "cloudfront:Create* none", "ec2:CreateDefault* none", "elasticfilesystem:CreateFileSystem none",
		"lambda:CreateCodeSigningConfig none", "lambda:CreateMicrovmImage none", "rds:CreateDBProxy none", "route53:Create* none", "s3:CreateStorageLensGroup none", "servicediscovery:Create* none", "sns:CreatePlatform* none",
		"ssm:CreateOpsItem none", "ssm:CreateOpsMetadata none", "ssm:CreatePatchBaseline none"}},
	{"it returns random bytes, a login to repositories, or a public key", []string{"ecr:GetAuthorizationToken none", "kms:GenerateRandom none", "kms:GetPublicKey key", "secretsmanager:GetRandomPassword none"}},
	{"it reads each secret as GetSecretValue, which the boundary denies", []string{"secretsmanager:BatchGetSecretValue none"}},
	{"it writes or reads the tags of each resource with that service's own action, which is denied or in a row of the page", []string{"tag:*"}},
	{"a task or machine opens the channel for its own identity", []string{"ecs:DiscoverPollEndpoint none", "ssmmessages:* none", "ssm:GetManifest none", "ssm:PutConfigurePackageResult none", "ssm:RegisterManagedInstance none"}},
	{"it also needs the table, which is guarded", []string{"dynamodb:*GlobalTable global-table", "dynamodb:UpdateGlobalTableSettings global-table"}},
	{"the document and the machine of the command are guarded", []string{"ssm:SendCommand bucket", "ssm:UpdateManagedInstanceRole iam-role"}},
	{"it takes the token of a task, which only the task's worker gets", []string{"states:SendTask* none"}},
	{"it needs iam:PassRole, which roles have below the app's path only", []string{"states:TestState none", "states:RevealSecrets none", "lambda:Pass*", "ec2:RunInstances launch-template"}},
	{"it also needs the credentials of a connection, which the boundary denies", []string{"states:InvokeHTTPEndpoint none"}},
	{"it reads configuration: names, settings and policies, as the page states", []string{"acm:GetAccountConfiguration none", "acm:GetCertificate certificate", "cloudfront:Get*", "dynamodb:Get*", "ec2:Get*", "ecr:BatchGetRepositoryScanningConfiguration repository",
		"ecr:GetAccountSetting none", "ecr:GetImageCopyStatus repository", "ecr:GetLifecyclePolicy* repository", "ecr:GetRe*Policy *", "elasticloadbalancing:Get*", "events:Get*", "kms:GetKey* key", "kms:GetParametersForImport key", "lambda:Get*",
		"logs:GetDelivery*", "logs:GetIntegration none", "logs:GetLogAnomalyDetector *", "logs:GetLogDelivery none", "logs:GetLogFields none", "logs:GetScheduledQuery *", "logs:GetStorageTierPolicy none", "route53:Get*",
		"s3:Get*Configuration* *", "s3:Get*Polic* *", "s3:GetBucket* *", "s3:GetAccountPublicAccessBlock none", "scheduler:Get*", "sns:Get*", "sqs:GetQueue* queue", "ssm:GetDocument document", "ssm:GetServiceSetting *"}},
}

// argued explains the open action, or returns an empty text.
func (o open) argued() (string, string) {
	for _, a := range arguedOpen {
		if p := o.first(a.patterns); p != "" {
			return "no attack: " + a.why, p
		}
	}
	for _, g := range gaps {
		if p := o.first(g.open); p != "" {
			return "gap: " + g.others, p
		}
	}
	return "", ""
}

// first returns the first pattern that has the action; a pattern without a type has all types.
func (o open) first(patterns []string) string {
	for _, p := range patterns {
		action, typ, ok := strings.Cut(p, " ")
		if like(action, o.action) && (!ok || like(typ, o.typ)) {
			return p
		}
	}
	return ""
}

// changes reports whether an action writes, deletes, gives permissions, or may read data. Others
// only list, describe or check.
func changes(level, name string) bool {
	return level != "List" && (level != "Read" || !regexp.MustCompile(`^(Describe|List|Search|Check|Validate|Test|Estimate)`).MatchString(name))
}

// actionsOfOthers returns each action of a default service on each type of resource that it
// names, on a resource that belongs to others.
func actionsOfOthers(t *testing.T) (out []open) {
	t.Helper()
	folder, err := iamsimulator.Data(t.Context())
	if err != nil {
		infratest.Ask(t, nil) // skips or fails the test
	}
	variable := regexp.MustCompile(`\$\{(\w+)\}`)
	for service := range strings.SplitSeq(defaultActions(t, synth(t).template), ",") {
		service = strings.TrimSuffix(service, ":*")
		type resourceType struct{ Name, ARN string }
		var actions map[string]struct {
			Name, AccessLevel string
			ResourceTypes     []resourceType
			ConditionKeys     []string
		}
		var types map[string]resourceType
		readJSON(t, filepath.Join(folder, "actions", service+".json"), &actions)
		readJSON(t, filepath.Join(folder, "resourceTypes", service+".json"), &types)
		for _, key := range slices.Sorted(maps.Keys(actions)) {
			a := actions[key]
			if !changes(a.AccessLevel, a.Name) {
				continue
			}
			o := open{action: service + ":" + a.Name, typ: none, resource: "*", tags: slices.Contains(a.ConditionKeys, "aws:RequestTag/${TagKey}")}
			if len(a.ResourceTypes) == 0 {
				out = append(out, o)
			}
			for _, r := range a.ResourceTypes {
				o.typ = strings.ReplaceAll(strings.ToLower(r.Name), " ", "-")
				o.resource = variable.ReplaceAllStringFunc(types[strings.ToLower(r.Name)].ARN, func(v string) string {
					known := map[string]string{"${Partition}": "aws", "${Region}": "eu-central-1", "${Account}": "111122223333"}
					if known[v] == "" {
						return "others-1"
					}
					return known[v]
				})
				o.unclear = false
				for _, other := range a.ResourceTypes {
					pattern := variable.ReplaceAllString(types[strings.ToLower(other.Name)].ARN, "*")
					o.unclear = o.unclear || other.Name != r.Name && like(pattern, o.resource)
				}
				if o.resource == "" {
					t.Fatalf("%s: the type %s has no ARN", o.action, r.Name)
				}
				out = append(out, o)
			}
		}
	}
	return out
}

// like reports whether a text matches a pattern of IAM. Actions match in any case.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if ok = ok && i >= 0; !ok {
			return false
		}
		rest = rest[i+len(part):]
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

// leaves reports whether no denial of the boundary applies to a request with these condition
// keys. It knows what the boundary uses, and TestOpenActionsAreThoseOfTheSimulator compares it
// with the IAM simulator.
func leaves(t *testing.T, boundary map[string]any, o open, context map[string]string) bool {
	t.Helper()
	list := func(v any) (out []string) {
		if s, ok := v.(string); ok {
			return []string{s}
		}
		for _, e := range v.([]any) {
			out = append(out, e.(string))
		}
		return out
	}
	some := func(v any, text string) bool {
		return slices.ContainsFunc(list(v), func(p string) bool { return like(p, text) })
	}
	for _, s := range infratest.Statements(boundary) {
		if s["Effect"] != "Deny" {
			continue
		}
		named := false
		if s["Action"] != nil {
			named = slices.ContainsFunc(list(s["Action"]), func(p string) bool { return like(strings.ToLower(p), strings.ToLower(o.action)) })
		} else {
			named = !slices.ContainsFunc(list(s["NotAction"]), func(p string) bool { return like(strings.ToLower(p), strings.ToLower(o.action)) })
		}
		if !named || !some(s["Resource"], o.resource) {
			continue
		}
		holds := true
		conditions, _ := s["Condition"].(map[string]any)
		for operator, keys := range conditions {
			for key, want := range keys.(map[string]any) {
				value, present := context[key]
				switch operator {
				case "StringNotEquals":
					holds = holds && !(present && slices.Contains(list(want), value))
				case "StringEqualsIfExists":
					holds = holds && (!present || slices.Contains(list(want), value))
				case "ArnLike":
					holds = holds && present && some(want, value)
				case "Null":
					holds = holds && fmt.Sprint(want) == fmt.Sprint(!present)
				default:
					t.Fatalf("leaves does not know the operator %s", operator)
				}
			}
		}
		if holds {
			return false
		}
	}
	return true
}

const requestTag = "aws:RequestTag/fairlead_install"

// attackers is the request of an attacker, who chooses the tags of the request.
func (o open) attackers() map[string]string {
	if o.tags {
		return map[string]string{requestTag: install}
	}
	return nil
}

// Each action of a default service that changes or reads what others own is denied by the
// boundary, or is in a row that customers read, or is argued. The list is AWS's, so an action
// that no recorded module uses is on it too.
func TestOpenActionsAreListed(t *testing.T) {
	boundary := stack(t).Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	all, left := actionsOfOthers(t), map[string]map[string][]string{} // by explanation, by service and type
	used, count := map[string]bool{}, 0
	for _, o := range all {
		if !leaves(t, boundary, o, o.attackers()) {
			continue
		}
		count++
		why, pattern := o.argued()
		if why == "" {
			t.Errorf("the boundary leaves %s on a resource of others: deny it, or add it to a row of gaps or of arguedOpen", o)
			continue
		}
		used[why+pattern] = true
		if left[why] == nil {
			left[why] = map[string][]string{}
		}
		service, name, _ := strings.Cut(o.action, ":")
		left[why][service+" "+o.typ] = append(left[why][service+" "+o.typ], name)
	}
	if len(all) < 2500 || len(all)-count < 500 {
		t.Errorf("%d actions, %d of them denied: the data of AWS, or the boundary, was not read", len(all), len(all)-count)
	}
	for _, a := range arguedOpen {
		for _, p := range a.patterns {
			if !used["no attack: "+a.why+p] {
				t.Errorf("the boundary leaves nothing that %q matches: remove it from arguedOpen", p)
			}
		}
	}
	for _, g := range gaps {
		for _, p := range g.open {
			if !used["gap: "+g.others+p] {
				t.Errorf("the boundary leaves nothing that %q matches: remove it from the gap %q", p, g.others)
			}
		}
		if len(g.open) == 0 {
			t.Errorf("the gap %q names no action that is open", g.others)
		}
	}
	var out strings.Builder
	for _, why := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(&out, "%s\n", why)
		for _, typ := range slices.Sorted(maps.Keys(left[why])) {
			fmt.Fprintf(&out, "    %s: %s\n", typ, strings.Join(left[why][typ], " "))
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" && !t.Failed() {
		if err := os.WriteFile(openFile, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(openFile); err != nil || string(text) != out.String() {
		t.Errorf("%s differs from what the boundary leaves open: review it, and write it with UPDATE_GOLDEN=1 (%v)", openFile, err)
	}
	t.Logf("%d actions on types of resources, %d denied", len(all), len(all)-count)
}

// The evaluation above is fast, and no substitute for the IAM simulator: both decide the same.
// A short run asks about a part of the actions.
func TestOpenActionsAreThoseOfTheSimulator(t *testing.T) {
	s := stack(t)
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	every := 1
	if testing.Short() {
		every = 11
	}
	var questions []infratest.Question
	var want []bool
	for i, o := range actionsOfOthers(t) {
		if i%every != 0 || o.unclear {
			continue
		}
		context := map[string]any{}
		for key, value := range o.attackers() {
			context[key] = value
		}
		questions, want = append(questions, byApp(s, o.action, o.resource, context)), append(want, leaves(t, boundary, o, o.attackers()))
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("the simulator allows %s on %s: %t, the evaluation: %t", questions[i].Action, questions[i].Resource, allowed, want[i])
		}
	}
	t.Logf("%d questions", len(questions))
}
