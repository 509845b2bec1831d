package infratest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The account and region that templates are resolved for.
const (
	Account = "111122223333"
	Region  = "eu-central-1"
)

// arns maps the type of a resource to the format of its ARN; %s is the name.
var arns = map[string]string{
	"AWS::DynamoDB::Table":        "arn:aws:dynamodb:" + Region + ":" + Account + ":table/%s",
	"AWS::S3::Bucket":             "arn:aws:s3:::%s",
	"AWS::KMS::Key":               "arn:aws:kms:" + Region + ":" + Account + ":key/%s",
	"AWS::KMS::ReplicaKey":        "arn:aws:kms:" + Region + ":" + Account + ":key/%s",
	"AWS::Backup::BackupVault":    "arn:aws:backup:" + Region + ":" + Account + ":backup-vault:%s",
	"AWS::SQS::Queue":             "arn:aws:sqs:" + Region + ":" + Account + ":%s",
	"AWS::Events::EventBus":       "arn:aws:events:" + Region + ":" + Account + ":event-bus/%s",
	"AWS::CloudWatch::Alarm":      "arn:aws:cloudwatch:" + Region + ":" + Account + ":alarm:%s",
	"AWS::Events::Rule":           "arn:aws:events:" + Region + ":" + Account + ":rule/%s",
	"AWS::Logs::LogGroup":         "arn:aws:logs:" + Region + ":" + Account + ":log-group:%s:*",
	"AWS::Lambda::Function":       "arn:aws:lambda:" + Region + ":" + Account + ":function:%s",
	"AWS::IAM::Role":              "arn:aws:iam::" + Account + ":role/%s",
	"AWS::ECR::Repository":        "arn:aws:ecr:" + Region + ":" + Account + ":repository/%s",
	"AWS::ECS::Cluster":           "arn:aws:ecs:" + Region + ":" + Account + ":cluster/%s",
	"AWS::SNS::Topic":             "arn:aws:sns:" + Region + ":" + Account + ":%s",
	"AWS::EC2::SecurityGroup":     "%s",
	"AWS::SecretsManager::Secret": "arn:aws:secretsmanager:" + Region + ":" + Account + ":secret:%s-AbCdEf",
}

// names maps the type of a resource to the property that sets its name, if it has one.
var names = map[string]string{
	"AWS::IAM::Role": "RoleName", "AWS::Logs::LogGroup": "LogGroupName", "AWS::ECR::Repository": "RepositoryName", "AWS::Events::EventBus": "Name",
	"AWS::Lambda::Function": "FunctionName", "AWS::Backup::BackupVault": "BackupVaultName", "AWS::ECS::Cluster": "ClusterName", "AWS::SecretsManager::Secret": "Name",
}

// Stack is a template whose references are replaced by values, as if it was deployed.
type Stack struct {
	Resources map[string]Resource
	resolver  resolver
}

type resolver struct {
	template   Template
	parameters map[string]any
	conditions map[string]any
	mappings   map[string]any
}

// Resolve returns the stack of the template with the given parameter values, or their
// defaults, and resolves every reference. Where CloudFormation would choose a name, it
// uses the logical id in lower case.
func (t Template) Resolve(values map[string]string) (Stack, error) {
	r := resolver{template: t, parameters: map[string]any{}}
	r.conditions, _ = t.Raw["Conditions"].(map[string]any)
	r.mappings, _ = t.Raw["Mappings"].(map[string]any)
	declared, _ := t.Raw["Parameters"].(map[string]any)
	for name, p := range declared {
		p := p.(map[string]any)
		value, ok := values[name]
		if !ok {
			if p["Default"] == nil {
				return Stack{}, fmt.Errorf("parameter %s has no value and no default", name)
			}
			value = fmt.Sprint(p["Default"])
		}
		r.parameters[name] = value
		if p["Type"] == "CommaDelimitedList" {
			list := []any{}
			for _, s := range strings.Split(value, ",") {
				list = append(list, s)
			}
			r.parameters[name] = list
		}
	}
	for name := range values {
		if _, ok := declared[name]; !ok {
			return Stack{}, fmt.Errorf("the template has no parameter %s", name)
		}
	}
	s := Stack{Resources: map[string]Resource{}, resolver: r}
	for id, resource := range t.Resources {
		if resource.Condition != "" && !r.condition(resource.Condition) {
			continue
		}
		properties, err := r.resolve(resource.Properties)
		if err != nil {
			return Stack{}, fmt.Errorf("resource %s: %w", id, err)
		}
		resource.Properties, _ = properties.(map[string]any)
		s.Resources[id] = resource
	}
	return s, nil
}

// ARN returns the ARN of a resource.
func (s Stack) ARN(id string) string {
	text, err := s.resolver.arn(id)
	if err != nil {
		return err.Error()
	}
	return text
}

// Output returns the value of an output of the stack.
func (s Stack) Output(id string) (any, error) {
	outputs, _ := s.resolver.template.Raw["Outputs"].(map[string]any)
	output, ok := outputs[id].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the template has no output %s", id)
	}
	return s.resolver.resolve(output["Value"])
}

func (r resolver) name(id string) (string, error) {
	resource, ok := r.template.Resources[id]
	if !ok {
		return "", fmt.Errorf("there is no resource %s", id)
	}
	name := any(strings.ToLower(id))
	if property := names[resource.Type]; property != "" && resource.Properties[property] != nil {
		var err error
		if name, err = r.resolve(resource.Properties[property]); err != nil {
			return "", err
		}
	}
	if resource.Type == "AWS::IAM::Role" && resource.Properties["Path"] != nil {
		path, err := r.resolve(resource.Properties["Path"])
		if err != nil {
			return "", err
		}
		name = strings.TrimPrefix(fmt.Sprint(path), "/") + fmt.Sprint(name)
	}
	return fmt.Sprint(name), nil
}

func (r resolver) arn(id string) (string, error) {
	name, err := r.name(id)
	if err != nil {
		return "", err
	}
	form, ok := arns[r.template.Resources[id].Type]
	if !ok {
		return "", fmt.Errorf("the format of the ARN of a %s is unknown", r.template.Resources[id].Type)
	}
	return fmt.Sprintf(form, name), nil
}

var pseudo = map[string]any{
	"AWS::Partition": "aws", "AWS::Region": Region, "AWS::AccountId": Account, "AWS::URLSuffix": "amazonaws.com",
	"AWS::StackId": "arn:aws:cloudformation:" + Region + ":" + Account + ":stack/fairlead/0", "AWS::StackName": "fairlead",
}

// none is the value of AWS::NoValue; resolve removes it from lists and maps.
type none struct{}

func (r resolver) resolve(v any) (any, error) {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, item := range v {
			value, err := r.resolve(item)
			if err != nil {
				return nil, err
			}
			if _, gone := value.(none); !gone {
				out = append(out, value)
			}
		}
		return out, nil
	case map[string]any:
		if len(v) == 1 {
			for key, argument := range v {
				if key == "Ref" || strings.HasPrefix(key, "Fn::") {
					return r.function(key, argument)
				}
			}
		}
		out := map[string]any{}
		for key, item := range v {
			value, err := r.resolve(item)
			if err != nil {
				return nil, err
			}
			if _, gone := value.(none); !gone {
				out[key] = value
			}
		}
		return out, nil
	}
	return v, nil
}

func (r resolver) function(name string, argument any) (any, error) {
	switch name {
	case "Ref":
		return r.ref(argument.(string))
	case "Fn::GetAtt":
		pair := argument.([]any)
		id, attribute := pair[0].(string), pair[1].(string)
		switch attribute {
		case "Arn", "BackupVaultArn":
			return r.arn(id)
		case "StreamArn":
			arn, err := r.arn(id)
			return arn + "/stream/2026-01-01T00:00:00.000", err
		}
		name, err := r.name(id)
		return attribute + "-of-" + name, err
	case "Fn::If":
		list := argument.([]any)
		if r.condition(list[0].(string)) {
			return r.resolve(list[1])
		}
		return r.resolve(list[2])
	}
	resolved, err := r.resolve(argument)
	if err != nil {
		return nil, err
	}
	list, _ := resolved.([]any)
	switch name {
	case "Fn::Join":
		var parts []string
		for _, part := range list[1].([]any) {
			parts = append(parts, fmt.Sprint(part))
		}
		return strings.Join(parts, list[0].(string)), nil
	case "Fn::Select":
		i, err := strconv.Atoi(fmt.Sprint(list[0]))
		if err != nil {
			return nil, err
		}
		return list[1].([]any)[i], nil
	case "Fn::Split":
		var parts []any
		for part := range strings.SplitSeq(fmt.Sprint(list[1]), fmt.Sprint(list[0])) {
			parts = append(parts, part)
		}
		return parts, nil
	case "Fn::GetAZs":
		return []any{Region + "a", Region + "b", Region + "c"}, nil
	case "Fn::Cidr":
		return []any{"part0", "part1", "part2", "part3"}, nil
	case "Fn::FindInMap":
		row := r.mappings[list[0].(string)].(map[string]any)[list[1].(string)].(map[string]any)
		return row[list[2].(string)], nil
	case "Fn::Sub":
		return r.substitute(fmt.Sprint(resolved))
	}
	return nil, fmt.Errorf("the function %s is not supported", name)
}

var placeholder = regexp.MustCompile(`\$\{(!?)([^}]+)\}`)

// substitute returns the text of an Fn::Sub with the values of its references.
func (r resolver) substitute(text string) (_ any, err error) {
	out := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		parts := placeholder.FindStringSubmatch(p)
		if parts[1] != "" {
			return "${" + parts[2] + "}"
		}
		call, argument := "Ref", any(parts[2])
		if id, attribute, ok := strings.Cut(parts[2], "."); ok {
			call, argument = "Fn::GetAtt", []any{id, attribute}
		}
		value, e := r.function(call, argument)
		err = errors.Join(err, e)
		return fmt.Sprint(value)
	})
	return out, err
}

func (r resolver) ref(name string) (any, error) {
	if name == "AWS::NoValue" {
		return none{}, nil
	}
	if v, ok := pseudo[name]; ok {
		return v, nil
	}
	if v, ok := r.parameters[name]; ok {
		return v, nil
	}
	if r.template.Resources[name].Type == "AWS::Lambda::Alias" { // a reference to an alias is its ARN
		p, err := r.resolve(r.template.Resources[name].Properties)
		if err != nil {
			return nil, err
		}
		return fmt.Sprintf(arns["AWS::Lambda::Function"]+":%s", p.(map[string]any)["FunctionName"], p.(map[string]any)["Name"]), nil
	}
	if r.template.Resources[name].Type == "AWS::IAM::ManagedPolicy" {
		p, err := r.resolve(r.template.Resources[name].Properties)
		if err != nil {
			return nil, err
		}
		m := p.(map[string]any)
		return fmt.Sprintf("arn:aws:iam::%s:policy%s%s", Account, m["Path"], m["ManagedPolicyName"]), nil
	}
	if r.template.Resources[name].Type == "AWS::SecretsManager::Secret" { // a reference to a secret is its ARN
		return r.arn(name)
	}
	return r.name(name)
}

func (r resolver) condition(name string) bool { return r.holds(r.conditions[name]) }

func (r resolver) holds(v any) bool {
	m, _ := v.(map[string]any)
	if name, ok := m["Condition"].(string); ok {
		return r.condition(name)
	}
	for key, argument := range m {
		list, _ := argument.([]any)
		switch key {
		case "Fn::Equals":
			a, errA := r.resolve(list[0])
			b, errB := r.resolve(list[1])
			return errA == nil && errB == nil && fmt.Sprint(a) == fmt.Sprint(b)
		case "Fn::Not":
			return !r.holds(list[0])
		case "Fn::And":
			for _, item := range list {
				if !r.holds(item) {
					return false
				}
			}
			return true
		case "Fn::Or":
			for _, item := range list {
				if r.holds(item) {
					return true
				}
			}
			return false
		}
	}
	panic(fmt.Sprintf("the condition is not supported: %v", v))
}

// Policies returns the policies of a role that the stack defines.
func (s Stack) Policies(role string) (policies []map[string]any) {
	list, _ := s.Resources[role].Properties["Policies"].([]any)
	for _, p := range list {
		policies = append(policies, p.(map[string]any)["PolicyDocument"].(map[string]any))
	}
	name, err := s.resolver.name(role)
	if err != nil {
		return policies
	}
	for _, id := range slices.Sorted(maps.Keys(s.Resources)) {
		r := s.Resources[id]
		of, _ := r.Properties["Roles"].([]any)
		if r.Type == "AWS::IAM::RolePolicy" && r.Properties["RoleName"] == name || r.Type == "AWS::IAM::Policy" && slices.Contains(of, any(name)) {
			policies = append(policies, r.Properties["PolicyDocument"].(map[string]any))
		}
	}
	return policies
}
