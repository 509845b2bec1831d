// Package nag suppresses rules of cdk-nag, of CloudFormation's validation and of
// cfn-lint that a stack does not follow, each with a reason.
package nag

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// Suppress suppresses a cdk-nag rule on a construct. If appliesTo has values, it
// suppresses only the findings that appliesTo names.
func Suppress(on constructs.Construct, rule, reason string, appliesTo ...string) {
	s := &cdknag.NagPackSuppression{Id: jsii.String(rule), Reason: jsii.String(reason)}
	if len(appliesTo) > 0 {
		list := make([]any, len(appliesTo))
		for i, a := range appliesTo {
			list[i] = a
		}
		s.AppliesTo = &list
	}
	cdknag.NagSuppressions_AddResourceSuppressions(on, &[]*cdknag.NagPackSuppression{s}, nil)
}

// Acknowledge suppresses a rule of CloudFormation's validation.
func Acknowledge(on constructs.Construct, rule, reason string) {
	awscdk.Validations_Of(on).Acknowledge(&awscdk.Acknowledgment{Id: jsii.String("CloudFormation-Validate::" + rule), Reason: jsii.String(reason)})
}

// Lint suppresses a check of cfn-lint, in the resource's metadata, which cfn-lint
// reads.
func Lint(on awscdk.CfnResource, check, reason string) {
	on.AddMetadata(jsii.String("cfn-lint"), map[string]any{"config": map[string]any{"ignore_checks": []any{check}}, "reason": reason})
}

// Wildcards suppresses the rule against wildcards in permissions, for exactly the
// actions and resources of the statements. reasons has the reason of each statement by
// its Sid. A wildcard without a reason is an error.
func Wildcards(stack awscdk.Stack, on constructs.Construct, statements []policy.Statement, reasons map[string]string) error {
	for _, s := range statements {
		if s.Deny {
			continue
		}
		for _, part := range []struct { // ordered, because the template keeps the order of the reasons
			kind   string
			values []string
		}{{"Action", s.Actions}, {"Resource", s.Resources}} {
			values, write := part.values, func(value string) string { return plain(stack, value) }
			if text, ok := token(stack, part.values); ok {
				values, write = []string{text}, func(value string) string { return value }
			}
			for _, value := range values {
				if !strings.Contains(value, "*") {
					continue
				}
				reason, ok := reasons[s.Sid]
				if !ok {
					return fmt.Errorf("%s: the wildcard in %s of statement %s has no reason", *on.Node().Path(), value, s.Sid)
				}
				Suppress(on, "AwsSolutions-IAM5", s.Sid+": "+reason, part.kind+"::"+write(value))
			}
		}
	}
	return nil
}

// token returns the text that cdk-nag writes for a list whose elements are unknown
// before the deployment. ok is false for other lists.
func token(stack awscdk.Stack, values []string) (text string, ok bool) {
	whole, ok := stack.Resolve(values).(map[string]any)
	if !ok {
		return "", false
	}
	var sb strings.Builder
	e := json.NewEncoder(&sb)
	e.SetEscapeHTML(false)
	if err := e.Encode(whole); err != nil {
		panic(err) // it came from JSON
	}
	return strings.TrimSuffix(sb.String(), "\n"), true
}

// plain returns an ARN with its references in angle brackets, as cdk-nag writes it.
func plain(stack awscdk.Stack, s string) string {
	return flatten(stack.Resolve(s))
}

func flatten(v any) string {
	switch v := v.(type) {
	case string:
		return strings.NewReplacer("${", "<", "}", ">").Replace(v)
	case []any:
		var sb strings.Builder
		for _, part := range v {
			sb.WriteString(flatten(part))
		}
		return sb.String()
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			return "<" + ref + ">"
		}
		if pair, ok := v["Fn::GetAtt"].([]any); ok {
			return "<" + flatten(pair[0]) + "." + flatten(pair[1]) + ">"
		}
		if join, ok := v["Fn::Join"].([]any); ok && len(join) == 2 {
			return flatten(join[1])
		}
		if v["Fn::If"] != nil || v["Fn::Select"] != nil { // cdk-nag names any other function by its JSON
			var text strings.Builder
			out := json.NewEncoder(&text)
			out.SetEscapeHTML(false)
			if out.Encode(v) == nil {
				return strings.TrimSuffix(text.String(), "\n")
			}
		}
	}
	return ""
}
