package fairlead

// PageQuery selects a page of a listing.
type PageQuery struct {
	After string // cursor: where the previous page ended; "": start at the beginning
	Limit int    // most items to return; 0: the page size of the listing
	// Prefix selects the identifiers that begin with this text, in listings that are ordered
	// by identifier; "": all identifiers.
	Prefix string
}
