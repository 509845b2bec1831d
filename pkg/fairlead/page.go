package fairlead

// PageQuery selects a page of a listing.
type PageQuery struct {
	After string // where the page before has ended; "": from the beginning
	Limit int    // how many at most; 0: as many as one page may have
	// Prefix begins the identifiers that are wanted, where those of a listing are
	// its order; "": all.
	Prefix string
}
