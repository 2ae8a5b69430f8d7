// Package conflicts finds objects of different names that claim the same thing, such as a host, and tells how istiod
// treats them. It serves explanations only, and has no effect on served objects.
package conflicts
