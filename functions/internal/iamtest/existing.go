package iamtest

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// The methods of this file ask the server what exists. The server sees them as requests of the
// account's owner, before it gets the request that they are for.

// errNoServer reports that a policy compares what only the server knows.
var errNoServer = errors.New("the guard has no server whose resources it can look up")

// ask sends a request to the server and returns the body of the answer. found is false if the
// server has no such resource.
func (g *Guard) ask(service, region, kind, target, body string) (answer []byte, found bool, err error) {
	if g.Server == "" {
		return nil, false, errNoServer
	}
	r, err := http.NewRequest(http.MethodPost, g.Server, strings.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Content-Type", kind)
	if target != "" {
		r.Header.Set("X-Amz-Target", target)
	}
	// The server reads only the service and the region from this header.
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+region+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = res.Body.Close() }() // the body was read to its end
	answer, err = io.ReadAll(res.Body)
	if err != nil || res.StatusCode == http.StatusNotFound || notFound(answer) {
		return nil, false, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, false, fmt.Errorf("look up a resource of %s: %s: %s", service, res.Status, answer)
	}
	return answer, true, nil
}

// notFound reports whether the answer of a service that speaks JSON is the error that a resource does not exist.
func notFound(answer []byte) bool {
	var refused struct {
		Type string `json:"__type"`
	}
	return json.Unmarshal(answer, &refused) == nil && strings.HasSuffix(refused.Type, "NotFoundException")
}

const form = "application/x-www-form-urlencoded"

// Tags returns the tags that a resource, an ARN, has in the server now.
func (g *Guard) Tags(arn string) (map[string]string, error) {
	out := map[string]string{}
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 {
		return nil, fmt.Errorf("%s is no ARN of a resource", arn)
	}
	service, id := parts[2], arn[strings.LastIndexAny(arn, ":/")+1:]
	switch service {
	case "ec2":
		text, _, err := g.ask("ec2", g.Region, form, "", url.Values{"Action": {"DescribeTags"}, "Version": {"2016-11-15"}, "Filter.1.Name": {"resource-id"}, "Filter.1.Value.1": {id}}.Encode())
		if err != nil {
			return nil, err
		}
		var answer struct {
			Tags []struct {
				Key   string `xml:"key"`
				Value string `xml:"value"`
			} `xml:"tagSet>item"`
		}
		if err := xml.Unmarshal(text, &answer); err != nil {
			return nil, err
		}
		for _, t := range answer.Tags {
			out[t.Key] = t.Value
		}
	case "iam":
		role, err := g.roleOf(id)
		return role.tags, err
	case "ecr":
		body, err := json.Marshal(map[string]any{"resourceArn": arn})
		if err != nil {
			return nil, err
		}
		text, found, err := g.ask("ecr", g.Region, "application/x-amz-json-1.1", "AmazonEC2ContainerRegistry_V20150921.ListTagsForResource", string(body))
		if err != nil || !found {
			return out, err
		}
		var answer struct{ Tags []struct{ Key, Value string } }
		if err := json.Unmarshal(text, &answer); err != nil {
			return nil, err
		}
		out = pairs(answer.Tags)
	default:
		body, err := json.Marshal(map[string]any{"ResourceARNList": []string{arn}})
		if err != nil {
			return nil, err
		}
		text, _, err := g.ask("tagging", g.Region, "application/x-amz-json-1.1", "ResourceGroupsTaggingAPI_20170126.GetResources", string(body))
		if err != nil {
			return nil, err
		}
		var answer struct {
			ResourceTagMappingList []struct {
				Tags []struct{ Key, Value string }
			}
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return nil, err
		}
		for _, r := range answer.ResourceTagMappingList {
			out = pairs(r.Tags)
		}
	}
	return out, nil
}

// existingRole is a role that the server has.
type existingRole struct {
	arn, boundary string
	exists        bool
	tags          map[string]string
}

// roleOf returns the role of a name. The ARN of a role that does not exist has no path.
func (g *Guard) roleOf(name string) (existingRole, error) {
	out := existingRole{arn: "arn:aws:iam::" + g.Account + ":role/" + name, tags: map[string]string{}}
	text, found, err := g.ask("iam", "us-east-1", form, "", url.Values{"Action": {"GetRole"}, "Version": {"2010-05-08"}, "RoleName": {name}}.Encode())
	if err != nil || !found {
		return out, err
	}
	var answer struct {
		Role struct {
			Arn                 string
			PermissionsBoundary struct{ PermissionsBoundaryArn string }
			Tags                []struct{ Key, Value string } `xml:"Tags>member"`
		} `xml:"GetRoleResult>Role"`
	}
	if err := xml.Unmarshal(text, &answer); err != nil {
		return out, err
	}
	return existingRole{arn: answer.Role.Arn, boundary: answer.Role.PermissionsBoundary.PermissionsBoundaryArn, exists: true, tags: pairs(answer.Role.Tags)}, nil
}
