The writer Jonas Falk has died at the age of 81. His novel The Salt Road was translated into thirty languages.

He wrote every morning from five to nine, with a pencil. He leaves a wife and three sons. A last book will appear in spring.

@highlight

Writer Jonas Falk dies at 81

@highlight

The Salt Road was translated into thirty languages
