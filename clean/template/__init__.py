"""Documents without their site's template: menus, headers, footers and notices that recur on a host's pages."""
