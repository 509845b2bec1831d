package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/tools/iamsimulator"
)

// actions is what AWS's Service Authorization Reference states about actions, as the npm
// package of the IAM simulator has it: which resource types an action names, how their ARNs
// look, and which condition keys it knows.
type actions struct {
	folder   string
	services map[string]*service
}

type service struct {
	actions map[string]action // by name in lower case
	types   map[string]resourceType
}

type action struct {
	Name          string
	ResourceTypes []struct {
		Name          string
		Required      bool
		ConditionKeys []string
	}
	ConditionKeys []string
}

type resourceType struct {
	Key           string
	ARN           string // with variables: arn:${Partition}:sqs:${Region}:${Account}:${QueueName}
	ConditionKeys []string
}

func loadActions(ctx context.Context) (*actions, error) {
	folder, err := iamsimulator.Data(ctx)
	return &actions{folder: folder, services: map[string]*service{}}, err
}

func (a *actions) service(prefix string) (*service, error) {
	if s := a.services[prefix]; s != nil {
		return s, nil
	}
	s := &service{}
	for name, into := range map[string]any{"actions": &s.actions, "resourceTypes": &s.types} {
		text, err := os.ReadFile(filepath.Join(a.folder, name, prefix+".json"))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, fmt.Errorf("read what IAM knows of %s: %w", prefix, err)
		}
	}
	a.services[prefix] = s
	return s, nil
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// pattern returns a regular expression for the ARNs of the type.
func (t resourceType) pattern() *regexp.Regexp {
	parts := variable.Split(t.ARN, -1)
	names := variable.FindAllStringSubmatch(t.ARN, -1)
	var b strings.Builder
	b.WriteString("^")
	for i, part := range parts {
		b.WriteString(regexp.QuoteMeta(part))
		if i < len(names) {
			switch names[i][1] {
			case "Partition":
				b.WriteString("aws")
			case "Region":
				b.WriteString("[a-z0-9-]*")
			case "Account":
				b.WriteString("[a-z0-9]*")
			default:
				b.WriteString("[^:]+")
			}
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

// knows reports whether the action, with this resource type, knows the condition key of a
// tag, such as aws:ResourceTag.
func (s *service) knows(a action, typ, key string) bool {
	key += "/${TagKey}"
	if slices.Contains(a.ConditionKeys, key) || key == "aws:ResourceTag/${TagKey}" && slices.Contains(s.types[strings.ToLower(typ)].ConditionKeys, key) {
		return true
	}
	for _, t := range a.ResourceTypes {
		if t.Name == typ && slices.Contains(t.ConditionKeys, key) {
			return true
		}
	}
	return false
}
