// Package policy represents IAM policies as data, so that a stack has one line for
// each permission and tests can read it.
package policy

// Statement is one statement of a policy. Its effect is Allow unless Deny is set. Set
// only one of Actions and NotActions, and only one of Resources and NotResources.
// Principal is for trust and resource policies.
type Statement struct {
	Sid          string
	Deny         bool
	Principal    map[string]any
	AnyPrincipal bool // "*"; tests require a condition that makes it safe
	Actions      []string
	NotActions   []string
	Resources    []string
	NotResources []string
	Conditions   map[string]map[string]any // by operator, then by key
	When         string                    // logical id of a condition of the stack, without which the statement does not exist; "": it always exists
}

// Document returns the policy of the statements, in CloudFormation's format.
func Document(statements ...Statement) map[string]any {
	list := make([]any, 0, len(statements))
	for _, s := range statements {
		statement := any(s.json())
		if s.When != "" {
			statement = map[string]any{"Fn::If": []any{s.When, statement, map[string]any{"Ref": "AWS::NoValue"}}}
		}
		list = append(list, statement)
	}
	return map[string]any{"Version": "2012-10-17", "Statement": list}
}

func (s Statement) json() map[string]any {
	out := map[string]any{"Effect": "Allow"}
	if s.Deny {
		out["Effect"] = "Deny"
	}
	if s.Sid != "" {
		out["Sid"] = s.Sid
	}
	switch {
	case s.AnyPrincipal:
		out["Principal"] = "*"
	case s.Principal != nil:
		out["Principal"] = s.Principal
	}
	for name, values := range map[string][]string{
		"Action": s.Actions, "NotAction": s.NotActions, "Resource": s.Resources, "NotResource": s.NotResources,
	} {
		if len(values) > 0 {
			out[name] = list(values)
		}
	}
	if len(s.Conditions) > 0 {
		conditions := map[string]any{}
		for operator, keys := range s.Conditions {
			m := map[string]any{}
			for key, value := range keys {
				if values, ok := value.([]string); ok {
					value = list(values)
				}
				m[key] = value
			}
			conditions[operator] = m
		}
		out["Condition"] = conditions
	}
	return out
}

func list(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// Service returns the principal of an AWS service.
func Service(name string) map[string]any { return map[string]any{"Service": name} }

// AWS returns the principal with an ARN.
func AWS(arn string) map[string]any { return map[string]any{"AWS": arn} }

// Trust returns the trust policy that lets a service assume a role.
func Trust(service string, conditions map[string]map[string]any) map[string]any {
	return Document(Statement{Principal: Service(service), Actions: []string{"sts:AssumeRole"}, Conditions: conditions})
}

// OnlyTLS returns the statement that denies all requests to the resources without TLS.
func OnlyTLS(service string, resources ...string) Statement {
	return Statement{Sid: "OnlyTLS", Deny: true, AnyPrincipal: true, Actions: []string{service + ":*"}, Resources: resources,
		Conditions: map[string]map[string]any{"Bool": {"aws:SecureTransport": "false"}}}
}
