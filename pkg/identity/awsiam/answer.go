package awsiam

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// namespace is the XML namespace of STS's answers.
const namespace = "https://sts.amazonaws.com/doc/2011-06-15/"

// Identity is the role of a caller, as STS reports it.
type Identity struct {
	Partition string // aws, aws-cn, ...
	Account   string // 12 digits
	// RoleID is the role's unique identifier, which begins with AROA. A role that is deleted and created again under
	// its old name gets another identifier.
	RoleID string
	// Role is the role's name without its path, which STS does not report.
	Role    string
	Session string // chosen by the caller that assumed the role
}

// RoleARN returns the role's ARN without its path, which STS does not report. It is for people to read, not for
// comparisons.
func (i Identity) RoleARN() string {
	return "arn:" + i.Partition + ":iam::" + i.Account + ":role/" + i.Role
}

// parseAnswer reads the answer of the endpoint e to GetCallerIdentity. An error without a kind means that this is not an
// answer to GetCallerIdentity. An error of KindUnauthenticated means that the caller is not a role.
func parseAnswer(h http.Header, body []byte, e Endpoint) (Identity, error) {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return Identity{}, fmt.Errorf("it has %d content types", len(types))
	}
	media, params, err := mime.ParseMediaType(types[0])
	if cs := strings.ToLower(params["charset"]); err != nil || media != "text/xml" || (cs != "" && cs != "utf-8") {
		return Identity{}, fmt.Errorf("its content type is %s", quote(types[0]))
	}
	const result = "/GetCallerIdentityResponse/GetCallerIdentityResult"
	v, err := texts(body, result+"/Account", result+"/Arn", result+"/UserId")
	if err != nil {
		return Identity{}, err
	}
	return parseIdentity(v[0], v[1], v[2], e)
}

// parseIdentity reads the parts of an answer. Parts that repeat a fact must agree.
func parseIdentity(account, arn, userID string, e Endpoint) (Identity, error) {
	if !accountID().match(account) {
		return Identity{}, errors.New("its account is malformed")
	}
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[1] != e.Partition || parts[3] != "" || parts[4] != account {
		return Identity{}, errors.New("its ARN is malformed, or of another partition or account")
	}
	kind, rest, _ := strings.Cut(parts[5], "/")
	if parts[2] != "sts" || kind != "assumed-role" {
		return Identity{}, refused("not-a-role", "the credentials are those of a user, a federated user or an account; a runner must use a role")
	}
	id := Identity{Partition: e.Partition, Account: account}
	var ok, same bool
	id.Role, id.Session, ok = strings.Cut(rest, "/")
	roleUnique, session, found := strings.Cut(userID, ":")
	id.RoleID, same = roleUnique, found && session == id.Session
	if !ok || !same || !roleName().match(id.Role) || !sessionName().match(id.Session) || !roleID().match(id.RoleID) {
		return Identity{}, errors.New("its ARN and its user are malformed, or do not agree")
	}
	return id, nil
}

// texts returns the text of the elements at paths. The document must contain each of
// them exactly once, in the namespace of STS, with only text in it. texts ignores other
// elements, because AWS may add elements. It refuses everything that two XML readers may
// read differently: a document type, comments, processing instructions, content after
// the root.
//
// long: it is one pass over a hostile document; each branch refuses one construct.
func texts(doc []byte, paths ...string) ([]string, error) {
	d := xml.NewDecoder(bytes.NewReader(doc))
	var (
		found = make([]string, len(paths))
		times = map[string]int{} // number of occurrences of each element that is at one of the paths, or encloses one
		at    []string           // names of the open elements
		into  = -1               // index of the path that is being read
		roots int
	)
	for first := true; ; first = false {
		t, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is not XML: %w", err)
		}
		switch t := t.(type) {
		case xml.ProcInst:
			if !first || t.Target != "xml" {
				return nil, errors.New("it has a processing instruction")
			}
		case xml.Directive:
			return nil, errors.New("it has a document type")
		case xml.Comment:
			return nil, errors.New("it has a comment")
		case xml.StartElement:
			if into >= 0 {
				return nil, fmt.Errorf("%s contains an element", paths[into])
			}
			if len(at) == 0 {
				roots++
			}
			if len(at) >= 8 || roots > 1 {
				return nil, errors.New("it is nested too deeply, or has several roots")
			}
			name := t.Name.Local
			if t.Name.Space != namespace {
				name = "{" + t.Name.Space + "}" + name // matches no path
			}
			at = append(at, name)
			here := "/" + strings.Join(at, "/")
			for i, p := range paths {
				if p == here {
					into = i
				}
				if p == here || strings.HasPrefix(p, here+"/") {
					times[here]++
					break
				}
			}
			if times[here] > 1 {
				return nil, fmt.Errorf("it has a second %s", here)
			}
		case xml.EndElement:
			at, into = at[:len(at)-1], -1
		case xml.CharData:
			switch {
			case into >= 0:
				found[into] += string(t)
			case len(at) == 0 && len(bytes.TrimSpace(t)) > 0:
				return nil, errors.New("it has text outside its root")
			}
		}
	}
	for _, p := range paths {
		if times[p] != 1 {
			return nil, fmt.Errorf("it has no %s", p)
		}
	}
	return found, nil
}

// errorCode returns the code of an error of STS, or "" for anything else.
func errorCode(body []byte) string {
	v, err := texts(body, "/ErrorResponse/Error/Code")
	if err != nil || !(shape{"", upper + lower + ".", 1, 64}).match(v[0]) {
		return ""
	}
	return v[0]
}
