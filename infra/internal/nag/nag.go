// Package nag states, where a stack does not follow a rule of cdk-nag or of
// CloudFormation's own validation, why it does not.
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

// Suppress argues with a rule, for what it applies to or else for all.
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

// Acknowledge argues with a rule of CloudFormation's validation.
func Acknowledge(on constructs.Construct, rule, reason string) {
	awscdk.Validations_Of(on).Acknowledge(&awscdk.Acknowledgment{Id: jsii.String("CloudFormation-Validate::" + rule), Reason: jsii.String(reason)})
}

// Lint argues with a check of cfn-lint, in the resource's metadata, where
// cfn-lint reads it.
func Lint(on awscdk.CfnResource, check, reason string) {
	on.AddMetadata(jsii.String("cfn-lint"), map[string]any{"config": map[string]any{"ignore_checks": []any{check}}, "reason": reason})
}

// Wildcards argues with the rule against wildcards in permissions, for exactly
// the actions and resources of the statements, each by the reason that its Sid
// has. A wildcard without a reason is an error.
func Wildcards(stack awscdk.Stack, on constructs.Construct, statements []policy.Statement, reasons map[string]string) error {
	for _, s := range statements {
		if s.Deny {
			continue
		}
		for _, part := range []struct { // in order: the template has the reasons in theirs
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

// token returns what stands for a whole list that is not known before it is
// deployed, as cdk-nag writes it. ok says that the list is one.
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

// plain writes an ARN with its references in angle brackets, as cdk-nag does.
func plain(stack awscdk.Stack, s string) string {
	return strings.NewReplacer("${", "<", "}", ">").Replace(flatten(stack.Resolve(s)))
}

func flatten(v any) string {
	switch v := v.(type) {
	case string:
		return v
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
	}
	return ""
}
