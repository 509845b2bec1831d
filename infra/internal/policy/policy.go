// Package policy writes IAM policies as data, so that a stack states each
// permission in one line and tests can read it back.
package policy

// Statement is one statement of a policy. It allows unless Deny is set. Each
// of Actions and NotActions, and of Resources and NotResources, excludes the
// other. Principal is for trust and resource policies.
type Statement struct {
	Sid          string
	Deny         bool
	Principal    map[string]any
	AnyPrincipal bool // "*"; tests ask for the condition that makes it safe
	Actions      []string
	NotActions   []string
	Resources    []string
	NotResources []string
	Conditions   map[string]map[string]any // by operator, then by key
}

// Document returns the policy of the statements, as CloudFormation takes it.
func Document(statements ...Statement) map[string]any {
	list := make([]any, 0, len(statements))
	for _, s := range statements {
		list = append(list, s.json())
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

// Service is the principal of an AWS service.
func Service(name string) map[string]any { return map[string]any{"Service": name} }

// AWS is the principal with an ARN.
func AWS(arn string) map[string]any { return map[string]any{"AWS": arn} }

// Trust returns the trust policy by which a service assumes a role.
func Trust(service string, conditions map[string]map[string]any) map[string]any {
	return Document(Statement{Principal: Service(service), Actions: []string{"sts:AssumeRole"}, Conditions: conditions})
}

// OnlyTLS refuses every request to the resources that is not encrypted on its
// way.
func OnlyTLS(service string, resources ...string) Statement {
	return Statement{Sid: "OnlyTLS", Deny: true, AnyPrincipal: true, Actions: []string{service + ":*"}, Resources: resources,
		Conditions: map[string]map[string]any{"Bool": {"aws:SecureTransport": "false"}}}
}
