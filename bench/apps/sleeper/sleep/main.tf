# What dies is to die in the middle of an apply. Ten minutes are longer than
# anybody needs to notice.

resource "terraform_data" "sleep" {
  provisioner "local-exec" {
    command = "exec sleep 600"
  }
}
