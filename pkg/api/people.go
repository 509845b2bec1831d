package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// UserPath names a user.
type UserPath struct {
	User string `path:"user" minLength:"3" maxLength:"254" form:"user" doc:"Email or identifier of the user"`
}

// IssuerPath names an issuer of logins.
type IssuerPath struct {
	Issuer string `path:"issuer" maxLength:"63" form:"name" doc:"Name of the issuer"`
}

func (s *server) peopleRoutes(c *control.Control) {
	s.loginRoutes(c)
	s.userRoutes(c)
	type set struct {
		IssuerPath
		Body wire.LoginIssuerRule
	}
	register(s, op{Route: wire.SetLoginIssuer, auth: apiToken, may: onShared(access.Operate), tag: "People", summary: "Set an issuer at which people log in",
		doc:      "It replaces the settings of an issuer of this name. Logins that were made continue.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeInvalidName, fairlead.CodeInvalidIssuer, fairlead.CodeTooManyIssuers}},
		func(ctx context.Context, in *set) (*body[wire.LoginIssuer], error) {
			i, err := c.SetLoginIssuer(ctx, callerOf(ctx).user, in.Issuer, readIssuer(in.Body))
			return answer(renderIssuer(i), err)
		})
	register(s, op{Route: wire.ListLoginIssuers, auth: apiToken, may: onShared(access.View), tag: "People", summary: "List the issuers at which people log in by name, all of them", problems: codes{fairlead.CodeRoleMissing}},
		func(ctx context.Context, _ *struct{}) (*body[wire.Page[wire.LoginIssuer]], error) {
			issuers, err := c.LoginIssuers(ctx)
			page := wire.Page[wire.LoginIssuer]{Items: []wire.LoginIssuer{}}
			for _, i := range issuers {
				page.Items = append(page.Items, renderIssuer(i))
			}
			return answer(page, err)
		})
	register(s, op{Route: wire.DeleteLoginIssuer, auth: apiToken, may: onShared(access.Operate), tag: "People", summary: "Delete an issuer at which people log in", status: http.StatusNoContent,
		doc:      "Logins that were made there continue until they expire.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeIssuerNotFound}},
		func(ctx context.Context, in *IssuerPath) (*struct{}, error) {
			return nil, c.DeleteLoginIssuer(ctx, callerOf(ctx).user, in.Issuer)
		})
}

func (s *server) loginRoutes(c *control.Control) {
	register(s, op{Route: wire.BeginLogin, auth: unauthenticated, may: open(), tag: "People", summary: "Begin a login: where people log in, and a nonce"},
		func(ctx context.Context, _ *struct{}) (*body[wire.LoginStart], error) {
			b, err := c.BeginLogin(ctx)
			out := wire.LoginStart{Nonce: b.Nonce, ExpiresAt: b.Expires.UTC(), Issuers: []wire.LoginProvider{}}
			for _, i := range b.Issuers {
				out.Issuers = append(out.Issuers, wire.LoginProvider{Name: i.Name, Issuer: i.Rule.Issuer, ClientID: i.Rule.ID, ClientSecret: i.Rule.Secret})
			}
			return answer(out, err)
		})
	type login struct{ Body wire.LogInRequest }
	register(s, op{Route: wire.LogIn, auth: unauthenticated, may: open(), tag: "People", summary: "Log in with an ID token of an issuer", status: http.StatusCreated,
		doc:      "The answer has a token for twelve hours. It permits what the roles of the user permit at the time of each request.",
		problems: codes{fairlead.CodeIssuerNotFound, fairlead.CodeLoginRefused, fairlead.CodeNotInvited, fairlead.CodeOrgAmbiguous, fairlead.CodeOIDCIssuerUnavailable}},
		func(ctx context.Context, in *login) (*body[wire.Login], error) {
			l, err := c.LogIn(ctx, control.LoginProof{Issuer: in.Body.Issuer, IDToken: in.Body.IDToken, Nonce: in.Body.Nonce, Org: fairlead.OrgID(in.Body.Org)})
			return answer(wire.Login{Token: l.Token, ExpiresAt: l.Expires.UTC(), Org: string(l.Org), User: renderUser(l.User)}, err)
		})
	type use struct{ Body wire.UseLinkRequest }
	register(s, op{Route: wire.UseLink, auth: unauthenticated, may: open(), tag: "People", summary: "Log in with a login link, once", status: http.StatusCreated,
		doc:      "The answer has a token for thirty days. It permits what the roles of the user permit at the time of each request.",
		problems: codes{fairlead.CodeLoginRefused}},
		func(ctx context.Context, in *use) (*body[wire.Login], error) {
			l, err := c.LogInByLink(ctx, in.Body.Token)
			return answer(wire.Login{Token: l.Token, ExpiresAt: l.Expires.UTC(), Org: string(l.Org), User: renderUser(l.User)}, err)
		})
	register(s, op{Route: wire.LogOut, auth: apiToken, may: eachCaller(), tag: "People", summary: "End the login whose token this request has", status: http.StatusNoContent,
		problems: codes{fairlead.CodeNotLogin}},
		func(ctx context.Context, _ *struct{}) (*struct{}, error) {
			if callerOf(ctx).who.Kind == access.Token {
				return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeNotLogin, Message: "the request has an API token, which is no login", Hint: "Revoke it with {token.revoke}."}
			}
			return nil, c.EndLogin(ctx, callerOf(ctx).token)
		})
	register(s, op{Route: wire.GetCaller, auth: apiToken, may: eachCaller(), tag: "People", summary: "Show who the caller is, and what it may do"},
		func(ctx context.Context, _ *struct{}) (*body[wire.Caller], error) {
			p := callerOf(ctx).who
			return answer(wire.Caller{Kind: string(p.Kind), ID: p.ID, Name: p.Name, Org: string(p.Org), Operator: p.Operator, Roles: renderBindings(p.Bindings), ExpiresAt: moment(p.Expires)}, nil)
		})
}

func (s *server) userRoutes(c *control.Control) {
	granting := codes{fairlead.CodeInvalidName, fairlead.CodeInstallNotFound, fairlead.CodeInvalidRole, fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound, fairlead.CodeRoleMissing, fairlead.CodeOperatorOnly}
	type invite struct {
		OnceInput
		Body wire.InviteUserRequest
	}
	register(s, op{Route: wire.InviteUser, auth: apiToken, may: eachCaller(), tag: "People", summary: "Invite a person: make the person a user of the org", status: http.StatusCreated,
		doc:      "The person is known by the email until the first login, and afterwards by the issuer and its subject. Nothing is sent to the person.",
		problems: slices.Concat(creator, granting, codes{fairlead.CodeInvalidEmail, fairlead.CodeUserExists, fairlead.CodeUserNotFound, fairlead.CodeTooManyUsers})},
		func(ctx context.Context, in *invite) (*body[wire.User], error) {
			u, err := c.InviteUser(ctx, callerOf(ctx).who, control.NewUser{Email: in.Body.Email, Operator: in.Body.Operator, Bindings: readBindings(in.Body.Roles)}, in.IdempotencyKey)
			return answer(renderUser(u), err)
		})
	register(s, op{Route: wire.ListUsers, auth: apiToken, may: eachCaller(), tag: "People", summary: "List users by email",
		doc:      "Only users whom the caller could invite are listed, and the caller itself.",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.User], error) {
			who := callerOf(ctx).who
			return list(in, func(u control.Person) (bool, error) { return control.SeesUser(who, u), nil }, renderUser, func(q fairlead.PageQuery) ([]control.Person, string, error) {
				return c.Users(ctx, who.Org, q)
			})
		})
	register(s, op{Route: wire.GetUser, auth: apiToken, may: eachCaller(), tag: "People", summary: "Get a user with its logins",
		problems: codes{fairlead.CodeUserNotFound}},
		func(ctx context.Context, in *UserPath) (*body[wire.User], error) {
			u, err := c.User(ctx, callerOf(ctx).who, in.User)
			return answer(renderUser(u), err)
		})
	type update struct {
		UserPath
		Body wire.UpdateUserRequest
	}
	register(s, op{Route: wire.UpdateUser, auth: apiToken, may: eachCaller(), tag: "People", summary: "Change what a user may do",
		doc:      "The change holds from the next request of the user on.",
		problems: slices.Concat(granting, codes{fairlead.CodeUserNotFound, fairlead.CodeLastOwner})},
		func(ctx context.Context, in *update) (*body[wire.User], error) {
			u, err := c.UpdateUser(ctx, callerOf(ctx).who, in.User, control.UserChange{Operator: in.Body.Operator, Bindings: readBindings(in.Body.Roles)})
			return answer(renderUser(u), err)
		})
	register(s, op{Route: wire.DeleteUser, auth: apiToken, may: eachCaller(), tag: "People", summary: "Delete a user, and end its logins", status: http.StatusNoContent,
		doc:      "API tokens that the user has created stay.",
		problems: codes{fairlead.CodeUserNotFound, fairlead.CodeRoleMissing, fairlead.CodeOperatorOnly, fairlead.CodeLastOwner}},
		func(ctx context.Context, in *UserPath) (*struct{}, error) {
			return nil, c.DeleteUser(ctx, callerOf(ctx).who, in.User)
		})
	register(s, op{Route: wire.CreateLink, auth: apiToken, may: eachCaller(), tag: "People", summary: "Make a login link for a person of a customer", status: http.StatusCreated,
		doc:      "Only people whose roles are all at installs log in with a link. It replaces an earlier one, and expires after seven days. An owner of the org makes the link of the first security of an install, until this person has logged in; after that, only security makes links.",
		problems: codes{fairlead.CodeUserNotFound, fairlead.CodeInvalidRole, fairlead.CodeRoleMissing, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *UserPath) (*body[wire.LoginLink], error) {
			l, err := c.CreateLoginLink(ctx, callerOf(ctx).who, in.User)
			return answer(wire.LoginLink{Token: l.Token, ExpiresAt: l.Expires.UTC()}, err)
		})
	register(s, op{Route: wire.EndLogins, auth: apiToken, may: eachCaller(), tag: "People", summary: "End all logins of a user", status: http.StatusNoContent,
		doc:      "The user can log in again.",
		problems: codes{fairlead.CodeUserNotFound}},
		func(ctx context.Context, in *UserPath) (*struct{}, error) {
			return nil, c.EndLogins(ctx, callerOf(ctx).who, in.User)
		})
}

// userPattern describes the emails and the identifiers of users.
const userPattern = control.EmailPattern + `|^` + fairlead.PrefixUser + `_[0-9a-z]{1,60}$`

func renderUser(u control.Person) wire.User {
	out := wire.User{Actors: renderActors(u.Actors), ID: u.ID, Email: u.Email, Name: u.Name, Operator: u.Operator, Roles: renderBindings(u.Bindings), Issuer: u.Issuer,
		CreatedAt: u.Invited.UTC(), LoggedInAt: moment(u.LoggedIn)}
	for _, l := range u.Logins {
		out.Logins = append(out.Logins, wire.UserLogin{ID: l.ID, CreatedAt: l.Created.UTC(), ExpiresAt: l.Expires.UTC()})
	}
	return out
}

func readIssuer(in wire.LoginIssuerRule) control.IssuerRule {
	return control.IssuerRule{Issuer: in.Issuer, ID: in.ClientID, Secret: in.ClientSecret, TrustEmail: in.TrustEmail, Keys: in.Keys}
}

func renderIssuer(i control.LoginIssuer) wire.LoginIssuer {
	return wire.LoginIssuer{Actors: renderActors(i.Actors), Name: i.Name, SetAt: i.Set.UTC(),
		LoginIssuerRule: wire.LoginIssuerRule{Issuer: i.Rule.Issuer, ClientID: i.Rule.ID, ClientSecret: i.Rule.Secret, TrustEmail: i.Rule.TrustEmail, Keys: i.Rule.Keys}}
}
