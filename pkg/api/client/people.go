package client

import (
	"context"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// BeginLogin returns where people log in, and a nonce. It needs no token.
func (c *Client) BeginLogin(ctx context.Context) (wire.LoginStart, error) {
	return get[wire.LoginStart](ctx, c, call{route: wire.BeginLogin})
}

// LogIn trades an ID token of an issuer for a token of the control plane. It needs no token. It is not repeated, because an ID
// token is accepted once.
func (c *Client) LogIn(ctx context.Context, in wire.LogInRequest) (wire.Login, error) {
	return get[wire.Login](ctx, c, call{route: wire.LogIn, in: in, once: true})
}

// UseLoginLink trades a login link for a token of the control plane. It needs no token. It is not repeated, because a link is good
// for one login.
func (c *Client) UseLoginLink(ctx context.Context, in wire.UseLinkRequest) (wire.Login, error) {
	return get[wire.Login](ctx, c, call{route: wire.UseLink, in: in, once: true})
}

// LogOut ends the login whose token the client has.
func (c *Client) LogOut(ctx context.Context) error {
	_, err := c.do(ctx, call{route: wire.LogOut}, nil)
	return err
}

// Caller returns who the client is.
func (c *Client) Caller(ctx context.Context) (wire.Caller, error) {
	return get[wire.Caller](ctx, c, call{route: wire.GetCaller})
}

// InviteUser makes a person a user.
func (c *Client) InviteUser(ctx context.Context, in wire.InviteUserRequest) (wire.User, error) {
	return get[wire.User](ctx, c, call{route: wire.InviteUser, in: in, key: NewIdempotencyKey()})
}

// ListUsers lists one page of users, by email.
func (c *Client) ListUsers(ctx context.Context, o ListOptions) (wire.Page[wire.User], error) {
	return page[wire.User](ctx, c, o, call{route: wire.ListUsers})
}

// GetUser returns a user by its email or ID, with its logins.
func (c *Client) GetUser(ctx context.Context, user string) (wire.User, error) {
	return get[wire.User](ctx, c, call{route: wire.GetUser, path: vars{"user": user}})
}

// UpdateUser changes what a user may do.
func (c *Client) UpdateUser(ctx context.Context, user string, in wire.UpdateUserRequest) (wire.User, error) {
	return get[wire.User](ctx, c, call{route: wire.UpdateUser, path: vars{"user": user}, in: in})
}

// DeleteUser deletes a user and ends its logins.
func (c *Client) DeleteUser(ctx context.Context, user string) error {
	_, err := c.do(ctx, call{route: wire.DeleteUser, path: vars{"user": user}}, nil)
	return err
}

// CreateLoginLink makes a login link for a person of a customer. It is not repeated, because each answer has another link.
func (c *Client) CreateLoginLink(ctx context.Context, user string) (wire.LoginLink, error) {
	return get[wire.LoginLink](ctx, c, call{route: wire.CreateLink, path: vars{"user": user}, once: true})
}

// EndLogins ends all logins of a user.
func (c *Client) EndLogins(ctx context.Context, user string) error {
	_, err := c.do(ctx, call{route: wire.EndLogins, path: vars{"user": user}}, nil)
	return err
}

// SetLoginIssuer creates or replaces an issuer at which people log in.
func (c *Client) SetLoginIssuer(ctx context.Context, name string, in wire.LoginIssuerRule) (wire.LoginIssuer, error) {
	return get[wire.LoginIssuer](ctx, c, call{route: wire.SetLoginIssuer, path: vars{"issuer": name}, in: in})
}

// ListLoginIssuers lists the issuers at which people log in, all of them on one page.
func (c *Client) ListLoginIssuers(ctx context.Context) (wire.Page[wire.LoginIssuer], error) {
	return get[wire.Page[wire.LoginIssuer]](ctx, c, call{route: wire.ListLoginIssuers})
}

// DeleteLoginIssuer deletes an issuer at which people log in.
func (c *Client) DeleteLoginIssuer(ctx context.Context, name string) error {
	_, err := c.do(ctx, call{route: wire.DeleteLoginIssuer, path: vars{"issuer": name}}, nil)
	return err
}
